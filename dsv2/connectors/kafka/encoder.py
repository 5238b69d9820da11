"""The functions with which ``KafkaSink`` creates messages from records."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

__all__ = ("Headers", "MessageEncoder")

T = TypeVar("T")
Headers: TypeAlias = Collection[tuple[str, bytes | None]]


@dataclass(frozen=True)
class MessageEncoder(Generic[T]):
    """Functions that return the parts of a record's message. ``topic`` may be a constant."""

    topic: str | Callable[[T], str]
    value: Callable[[T], bytes | None]
    key: Callable[[T], bytes | None] | None
    headers: Callable[[T], Headers] | None
    partition: Callable[[T], int] | None
