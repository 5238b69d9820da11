"""Measures how long user code of one operator takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dsv2.runtime.operator.function_calls import FunctionCalls
from dsv2.watermark import Watermark, WatermarkHandlingStrategy
from dsv2.watermark.declaration import is_forwarded

P = ParamSpec("P")
R = TypeVar("R")


class TimedCalls:
    """Calls of a function, whose duration is measured by ``elapsed_ns``. Calls within a call do not count twice."""

    __slots__ = ("calls", "elapsed_ns", "user_ns")

    def __init__(self, calls: FunctionCalls, elapsed_ns: Callable[[], int]) -> None:
        self.calls = calls
        self.elapsed_ns = elapsed_ns
        self.user_ns = 0
        """The duration of all calls. Not part of the state, because a repeated task takes another time."""

    def run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the result of ``call``, which calls user code."""
        before, began = self.user_ns, self.elapsed_ns()
        result = call(*args, **kwargs)
        self.user_ns = before + self.elapsed_ns() - began
        return result

    def forwards(self, input_index: int, watermark: Watermark, strategy: WatermarkHandlingStrategy) -> bool:
        """Pass a watermark of an input to the function, and return whether it is forwarded."""
        return is_forwarded(self.run(self.calls.watermark, input_index, watermark), strategy)
