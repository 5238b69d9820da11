"""Broadcast rules."""
