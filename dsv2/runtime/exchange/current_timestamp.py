"""The timestamp of what is being processed."""

from __future__ import annotations

__all__ = ("CurrentTimestamp",)


class CurrentTimestamp:
    """The timestamp of the record or timer that is being processed, in ms, if it has one."""

    __slots__ = ("timestamp",)

    def __init__(self) -> None:
        self.timestamp: int | None = None
