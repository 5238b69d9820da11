"""Interval join in event time."""
