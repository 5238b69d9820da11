"""The objects that programs and functions handle: contexts, policies, tags, resources and batches."""

__all__ = ()
