"""Combiners, compared with recordings of Flink 2.3.0 (a step is: channel, value, outputs)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dsv2.watermark import WatermarkDeclaration, new_builder
from dsv2.watermark.arrival_combiner import WatermarkCombiner
from dsv2.watermark.combiner import AlignedWatermarkCombiner, new_combiner
from tests import ROOT

Case = dict[str, Any]

CASES: list[Case] = json.loads((ROOT / "tests" / "golden" / "combiners.json").read_text())

# Recordings of Flink's event-time extension. Its combiner and handler are not the generalized ones tested here: see
# test_event_time_golden.py.
OF_THE_EVENT_TIME_EXTENSION = {"event_time", "event_time_handler"}

# Flink delivers the value that arrived last and ignores the declared function. dsv2 applies the function. Both deliver
# a round at the same time, and the next round begins empty.
APPLIES_THE_FUNCTION_WHERE_FLINK_DOES_NOT = {"aligned"}

FUNCTIONS = {"MIN": min, "MAX": max}


def cases(*kinds: str) -> list[Any]:
    def name(case: Case) -> str:
        wait = "-wait" if case.get("wait") else ""
        return f"{case['combiner']}-{case.get('fn', 'last')}{wait}-{case['channels']}ch"

    return [pytest.param(case, id=name(case)) for case in CASES if case["combiner"] in kinds]


def long_declaration(function: str, wait: bool, aligned: bool = False) -> WatermarkDeclaration:
    builder = new_builder("w").type_long().combine_wait_for_all_channels(wait).aligned(aligned)
    return (builder.combine_function_min() if function == "MIN" else builder.combine_function_max()).build()


def bool_declaration(function: str, wait: bool) -> WatermarkDeclaration:
    builder = new_builder("w").type_bool().combine_wait_for_all_channels(wait)
    return (builder.combine_function_and() if function == "AND" else builder.combine_function_or()).build()


def aligned_steps(case: Case) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """Yield channel, value, Flink's outputs, and the values of the round that this step completes, if any."""
    values: list[int] = []
    for channel, value, outputs, resumed in case["steps"]:
        values.append(value)
        yield channel, value, outputs, values if resumed else []
        if resumed:
            values = []


def test_every_recorded_kind_is_known() -> None:
    kinds = {case["combiner"] for case in CASES}
    assert kinds == {"long", "bool"} | APPLIES_THE_FUNCTION_WHERE_FLINK_DOES_NOT | OF_THE_EVENT_TIME_EXTENSION


@pytest.mark.parametrize("case", cases("long", "bool"))
def test_combines_as_flink(case: Case) -> None:
    declare = long_declaration if case["combiner"] == "long" else bool_declaration
    combiner = new_combiner(declare(case["fn"], case["wait"]), case["channels"])
    assert isinstance(combiner, WatermarkCombiner)
    for step, (channel, value, outputs) in enumerate(case["steps"]):
        delivered = combiner.update(channel, value)
        # repr, because True == 1 and the type of the value is part of the signal.
        assert repr([] if delivered is None else [delivered]) == repr(outputs), f"step {step}"


@pytest.mark.parametrize("case", cases(*APPLIES_THE_FUNCTION_WHERE_FLINK_DOES_NOT))
@pytest.mark.parametrize("function", FUNCTIONS)
def test_aligned_rounds_match_flink_except_the_function(case: Case, function: str) -> None:
    combiner = new_combiner(long_declaration(function, wait=True, aligned=True), case["channels"])
    assert isinstance(combiner, AlignedWatermarkCombiner)
    for step, (channel, value, flink, round_values) in enumerate(aligned_steps(case)):
        assert flink == round_values[-1:], f"step {step}: Flink delivers the last value of a round"
        ours = FUNCTIONS[function](round_values) if round_values else None
        assert combiner.update(channel, value) == ours, f"step {step}"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_recordings_show_the_aligned_difference(function: str) -> None:
    """Checks that the listed difference exists."""
    rounds = [r for case in CASES if case["combiner"] == "aligned" for _, _, _, r in aligned_steps(case) if r]
    assert any(FUNCTIONS[function](values) != values[-1] for values in rounds)
