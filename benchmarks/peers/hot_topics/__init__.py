"""Hot topics."""
