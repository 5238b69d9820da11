"""Tools for testing functions and jobs: harnesses for single functions, a manual clock, and an interruptible source."""

from dsv2.runtime.operator.clock_event_loop import ClockEventLoop
from dsv2.testing.clock import ManualClock
from dsv2.testing.elements import Element, EndOfInput, IdleStatus, StampedRecord
from dsv2.testing.factory import HarnessFactory
from dsv2.testing.harness import Harness, HarnessInput, HarnessOptions, HarnessOutput
from dsv2.testing.harnesses import (
    OneInputHarness,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)
from dsv2.testing.interruptions import Crash, Interruption, Pause, Stop
from dsv2.testing.source import TestSource

__all__ = (
    "ClockEventLoop",
    "Crash",
    "Element",
    "EndOfInput",
    "Harness",
    "HarnessFactory",
    "HarnessInput",
    "HarnessOptions",
    "HarnessOutput",
    "IdleStatus",
    "Interruption",
    "ManualClock",
    "OneInputHarness",
    "Pause",
    "StampedRecord",
    "Stop",
    "TestSource",
    "TwoInputBroadcastHarness",
    "TwoInputNonBroadcastHarness",
    "TwoOutputHarness",
)
