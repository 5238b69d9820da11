"""Jobs: handles, options, progress, listeners and the summary of their numbers."""

__all__ = ()
