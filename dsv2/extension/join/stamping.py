"""A collector for results with a timestamp other than that of the current record."""

from __future__ import annotations

from typing import Generic, Self, TypeVar

from dsv2.context import Collector
from dsv2.spi import stamping_collector

__all__ = ("Stamping",)

OUT = TypeVar("OUT")


class Stamping(Generic[OUT]):
    """Wraps the collector of a function and assigns a given timestamp to the results."""

    __slots__ = ("_collect_stamped", "_output", "_timestamp")

    def __init__(self, output: Collector[OUT]) -> None:
        self._output = output
        self._collect_stamped = stamping_collector(output).collect_stamped
        self._timestamp = 0

    def at(self, timestamp: int) -> Self:
        """Assign ``timestamp`` (ms) to the records collected from now on."""
        self._timestamp = timestamp
        return self

    def collect(self, record: OUT) -> None:
        """Emit ``record`` with the assigned timestamp."""
        self._collect_stamped(record, self._timestamp)

    def collect_and_overwrite_timestamp(self, record: OUT, timestamp: int) -> None:
        """Emit ``record`` with ``timestamp`` (ms)."""
        self._output.collect_and_overwrite_timestamp(record, timestamp)
