"""Tumbling event-time windows."""
