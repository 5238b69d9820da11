"""What of a record becomes what of its message."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

__all__ = ("Headers", "MessageEncoder")

T = TypeVar("T")
Headers: TypeAlias = Collection[tuple[str, bytes | None]]


@dataclass(frozen=True)
class MessageEncoder(Generic[T]):
    """Functions that make a message of a record; ``topic`` may be the same for all."""

    topic: str | Callable[[T], str]
    value: Callable[[T], bytes | None]
    key: Callable[[T], bytes | None] | None
    headers: Callable[[T], Headers] | None
    partition: Callable[[T], int] | None
