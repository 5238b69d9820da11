"""A source and a sink for Redis: ``pip install "dsv2[redis]"``."""

from dsv2.connectors.redis.commands import RedisCommand, RedisValue, add_to_stream, set_key
from dsv2.connectors.redis.sink import RedisSink
from dsv2.connectors.redis.source import RedisSource
from dsv2.connectors.redis.stream import RedisEntry, StreamSplit

__all__ = (
    "RedisCommand",
    "RedisEntry",
    "RedisSink",
    "RedisSource",
    "RedisValue",
    "StreamSplit",
    "add_to_stream",
    "set_key",
)
