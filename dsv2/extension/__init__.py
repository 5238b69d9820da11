"""What is built on the core: event time, windows, joins (Flink ``datastream.api.extension``)."""

__all__ = ()
