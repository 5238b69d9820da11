"""The factory of harnesses, and the fixture ``harness``: each kind of function has its harness."""

from __future__ import annotations

from typing import assert_type

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.testing import (
    HarnessFactory,
    OneInputHarness,
    TwoInputBroadcastHarness,
    TwoInputNonBroadcastHarness,
    TwoOutputHarness,
)


def test_kinds(
    harness: HarnessFactory,
    one: OneInputStreamProcessFunction[str, int],
    two_outputs: TwoOutputStreamProcessFunction[str, int, bytes],
    two_inputs: TwoInputNonBroadcastStreamProcessFunction[str, bytes, int],
    broadcast: TwoInputBroadcastStreamProcessFunction[str, bytes, int],
) -> None:
    assert_type(harness(one, key=len, parallelism=2), OneInputHarness[str, int])
    assert_type(harness(two_outputs, key=lambda text: text.upper()), TwoOutputHarness[str, int, bytes])
    keyed = harness(two_inputs, first_key=len, second_key=lambda data: data[0], output_key=abs)
    assert_type(keyed, TwoInputNonBroadcastHarness[str, bytes, int])
    assert_type(harness(broadcast, key=len), TwoInputBroadcastHarness[str, bytes, int])
