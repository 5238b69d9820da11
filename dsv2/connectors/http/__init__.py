"""Sources and a sink for HTTP endpoints, such as webhooks: ``pip install "dsv2[http]"``."""

from dsv2.connectors.http.event_source import SseSource
from dsv2.connectors.http.events import ServerSentEvent
from dsv2.connectors.http.pages import HttpSplit, PageFunction
from dsv2.connectors.http.sink import HttpSink
from dsv2.connectors.http.source import HttpSource

__all__ = ("HttpSink", "HttpSource", "HttpSplit", "PageFunction", "ServerSentEvent", "SseSource")
