"""Counters and gauges of functions (Flink ``MetricGroup``)."""

from __future__ import annotations

from collections.abc import Callable

from dsv2.runtime.serde.references import Reference

__all__ = ("DefaultCounter", "DefaultMetricGroup")


class DefaultCounter(Reference):
    """``Counter``. A field of a function that holds one refers to the counter of that name after a restart."""

    __slots__ = ("count", "name")

    reference_kind = "counter"

    def __init__(self, name: str = "", count: int = 0) -> None:
        self.name = name
        self.count = count

    @property
    def reference_name(self) -> str:
        return self.name

    def inc(self, amount: int = 1) -> None:
        """Increase the counter by ``amount``."""
        self.count += amount


class DefaultMetricGroup:
    """``MetricGroup``."""

    def __init__(self) -> None:
        self.counters: dict[str, DefaultCounter] = {}
        self.gauges: dict[str, Callable[[], int | float]] = {}

    def counter(self, name: str) -> DefaultCounter:
        """Return the counter ``name``, creating it if necessary."""
        return self.counters.setdefault(name, DefaultCounter(name))

    def gauge(self, name: str, read: Callable[[], int | float]) -> None:
        """Register a gauge that reports the value of ``read()``."""
        self.gauges[name] = read
