"""``HarnessFactory``: creates harnesses for functions, and closes them at the end of a test."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self, Unpack, overload

from dsv2.base.type_variables import IN, IN1, IN2, OUT, OUT1, OUT2
from dsv2.functions import (
    OneInput,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.graph import WaitForBroadcast
from dsv2.spi import TwoInputDeclaration
from dsv2.testing.clock import ManualClock
from dsv2.testing.harness import Harness, HarnessOptions
from dsv2.testing.harnesses import (
    OneInputHarness,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)

_HARNESSES: dict[type, Callable[..., Harness]] = {
    TwoOutputStreamProcessFunction: TwoOutputHarness,
    TwoInputNonBroadcastStreamProcessFunction: TwoInputNonBroadcastHarness,
    TwoInputDeclaration: TwoInputNonBroadcastHarness,
    TwoInputBroadcastStreamProcessFunction: TwoInputBroadcastHarness,
}


class HarnessFactory:
    """Creates the harness that fits a function, with one clock for all. Leaving its ``with`` block closes them.

    The fixture ``harness`` of the plugin of pytest is one. It is called with the arguments of the harness.

    Args:
        clock: The clock of the harnesses.
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.close()

    @overload
    def __call__(
        self,
        function: OneInput[IN, OUT],
        *,
        key: Callable[[IN], Hashable] | None = ...,
        output_key: Callable[[OUT], Hashable] | None = ...,
        **options: Unpack[HarnessOptions],
    ) -> OneInputHarness[IN, OUT]: ...

    @overload
    def __call__(
        self,
        function: TwoOutputStreamProcessFunction[IN, OUT1, OUT2],
        *,
        key: Callable[[IN], Hashable] | None = ...,
        first_output_key: Callable[[OUT1], Hashable] | None = ...,
        second_output_key: Callable[[OUT2], Hashable] | None = ...,
        **options: Unpack[HarnessOptions],
    ) -> TwoOutputHarness[IN, OUT1, OUT2]: ...

    @overload
    def __call__(
        self,
        function: TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT],
        *,
        first_key: Callable[[IN1], Hashable] | None = ...,
        second_key: Callable[[IN2], Hashable] | None = ...,
        output_key: Callable[[OUT], Hashable] | None = ...,
        **options: Unpack[HarnessOptions],
    ) -> TwoInputNonBroadcastHarness[IN1, IN2, OUT]: ...

    @overload
    def __call__(
        self,
        function: TwoInputBroadcastStreamProcessFunction[IN1, IN2, OUT],
        *,
        key: Callable[[IN1], Hashable] | None = ...,
        output_key: Callable[[OUT], Hashable] | None = ...,
        wait_for_broadcast: WaitForBroadcast | None = ...,
        **options: Unpack[HarnessOptions],
    ) -> TwoInputBroadcastHarness[IN1, IN2, OUT]: ...

    def __call__(self, function: Any, **options: Any) -> Harness:
        """Create a harness. The options are those of its class; ``clock`` replaces the common clock."""
        kind = next((kind for kind in _HARNESSES if isinstance(function, kind)), None)
        new = OneInputHarness if kind is None else _HARNESSES[kind]
        harness: Harness = new(function, **{"clock": self._clock, **options})
        self._open.callback(harness.close)
        return harness
