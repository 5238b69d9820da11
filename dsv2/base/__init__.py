"""Helpers that know nothing of dsv2."""
