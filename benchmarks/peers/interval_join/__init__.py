"""Event-time interval join."""
