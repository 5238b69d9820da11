"""Sources and sinks on systems outside of Spark. Each needs a client library, which an extra of dsv2 installs."""

__all__ = ()
