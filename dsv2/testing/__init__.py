"""For tests of your functions and jobs: harnesses around single functions, a clock, a source that stops and crashes."""

from dsv2.testing.clock import ManualClock
from dsv2.testing.elements import Element, EndOfInput, IdleStatus, StampedRecord
from dsv2.testing.harness import Harness, HarnessInput, HarnessOptions, HarnessOutput
from dsv2.testing.harnesses import (
    OneInputHarness,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)

__all__ = (
    "Element",
    "EndOfInput",
    "Harness",
    "HarnessInput",
    "HarnessOptions",
    "HarnessOutput",
    "IdleStatus",
    "ManualClock",
    "OneInputHarness",
    "StampedRecord",
    "TwoInputBroadcastHarness",
    "TwoInputNonBroadcastHarness",
    "TwoOutputHarness",
)
