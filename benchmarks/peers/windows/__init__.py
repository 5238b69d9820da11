"""Tumbling windows in event time."""
