"""Streams, to which pipelines add operators."""

__all__ = ()
