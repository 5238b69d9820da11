"""A sink for HTTP endpoints, such as webhooks: ``pip install "dsv2[http]"``."""

from dsv2.connectors.http.sink import HttpSink

__all__ = ("HttpSink",)
