"""Sinks: the records of the last level, written in tasks or on the driver."""
