"""Streams, to which pipelines add operators."""
