"""A source and a sink for streams of NATS JetStream: ``pip install "dsv2[nats]"``."""

from dsv2.connectors.nats.message import NatsMessage, NatsSplit
from dsv2.connectors.nats.sink import NatsSink
from dsv2.connectors.nats.source import NatsSource

__all__ = ("NatsMessage", "NatsSink", "NatsSource", "NatsSplit")
