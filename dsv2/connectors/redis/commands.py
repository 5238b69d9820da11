"""The commands that a ``RedisSink`` writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from dsv2.base.type_variables import T

RedisValue: TypeAlias = str | bytes | int | float
"""A value of Redis. Texts are stored in UTF-8, numbers as texts."""

RedisCommand: TypeAlias = Sequence[RedisValue]
"""A command and its arguments, such as ``("HINCRBY", "totals", "Köln", 3)``."""


def add_to_stream(stream: str, fields: Callable[[T], Mapping[str, RedisValue]]) -> Callable[[T], RedisCommand]:
    """Return a function for ``RedisSink`` that adds an entry with ``fields`` of the record to a stream."""

    def command(record: T) -> RedisCommand:
        return ("XADD", stream, "*", *(part for field in fields(record).items() for part in field))

    return command


def set_key(key: Callable[[T], RedisValue], value: Callable[[T], RedisValue | None]) -> Callable[[T], RedisCommand]:
    """Return a function for ``RedisSink`` that sets a key. It deletes the key if ``value`` returns None.

    All records of a key must come from one subtask (``key_by``). The last one counts.
    """

    def command(record: T) -> RedisCommand:
        found = value(record)
        return ("DEL", key(record)) if found is None else ("SET", key(record), found)

    return command


def encoded(command: RedisCommand) -> list[bytes]:
    """Return the parts of a command. Raises ``TypeError`` or ``ValueError`` if it is none."""
    if isinstance(command, str | bytes) or not command:
        raise TypeError(f"A command is a sequence such as ('SET', 'key', 'value'), not {command!r}.")
    return [_encoded(part) for part in command]


def _encoded(part: RedisValue) -> bytes:
    if isinstance(part, bool) or not isinstance(part, str | bytes | int | float):
        raise TypeError(f"Redis stores texts, bytes and numbers, not {part!r}.")
    return part if isinstance(part, bytes) else str(part).encode()
