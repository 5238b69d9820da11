"""Keyed state in columns. ``dsv2.arrow.ArrowKeyedState`` is the interface for users."""
