"""Counters and gauges of functions (Flink ``MetricGroup``)."""

from __future__ import annotations

from collections.abc import Callable

from dsv2.runtime.serde.references import Reference

__all__ = ("DefaultCounter", "DefaultMetricGroup")


class DefaultCounter(Reference):
    """``Counter``. A function that keeps one in a field finds the one of this name there after a restart."""

    __slots__ = ("count", "name")

    reference_kind = "counter"

    def __init__(self, name: str = "", count: int = 0) -> None:
        self.name = name
        self.count = count

    @property
    def reference_name(self) -> str:
        return self.name

    def inc(self, amount: int = 1) -> None:
        """Add ``amount``."""
        self.count += amount


class DefaultMetricGroup:
    """``MetricGroup``."""

    def __init__(self) -> None:
        self.counters: dict[str, DefaultCounter] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}

    def counter(self, name: str) -> DefaultCounter:
        """The counter called ``name``."""
        return self.counters.setdefault(name, DefaultCounter(name))

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Show the value of ``read()``."""
        self.gauges[name] = read
