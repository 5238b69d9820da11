"""Holders of a watermark further upstream, and reports on progress that lacks something."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from dsv2.base.quantities import time_text
from dsv2.jobs.handle import JobHandle
from dsv2.jobs.progress import OperatorProgress
from dsv2.jobs.watermark_report import Cause, OperatorWatermark, report_watermarks
from dsv2.streams import WaitForBroadcast
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingResult
from tests.spans import Item
from tests.support import broadcast_side, one_input, two_inputs
from tests.unit.jobs.test_stuck_watermarks import (
    BARRIER,
    IN_G,
    START,
    Join,
    Numbers,
    Program,
    W,
    emits,
    strategy,
    through,
)


def changed(program: Program, job: JobHandle, uid: str, operator: OperatorProgress) -> OperatorWatermark:
    """The report on ``uid`` if the progress of an operator were ``operator``."""
    progress = replace(job.progress, operators={**job.progress.operators, operator.uid: operator})
    return report_watermarks(program.view, progress, START + 94_000, operator=uid)[uid]


def test_an_aligned_watermark_is_followed_through_functions() -> None:
    program = Program(parallelism=2)
    emitter = program.source("in", a=3, b=9).process(emits(BARRIER, at=Item("b", 4))).with_uid("emitter")
    forwards = one_input(on_watermark=lambda *args: WatermarkHandlingResult.PEEK)
    middle = emitter.shuffle().process(forwards).with_uid("middle").with_parallelism(1)
    program.end(middle.shuffle().process(one_input()).with_uid("f"))
    found = program.report("f", "barrier")
    assert (found.cause, through(found)) == (Cause.NOT_EMITTED, ["f", "middle", "emitter"])
    assert "'emitter', subtask 0 declares it, has received 3 records, and has not emitted it" in found.sentence


def test_a_function_that_declares_what_it_receives() -> None:
    program = Program()
    polls = one_input(declare_watermarks=lambda: [W], on_watermark=lambda *args: WatermarkHandlingResult.POLL)
    relay = program.source("in", a=9).process(emits(W)).process(polls).with_uid("relay")
    program.end(relay.process(one_input()).with_uid("f"))
    found = program.report("f", "w")
    assert (found.cause, through(found)) == (Cause.NOT_EMITTED, ["f", "relay"])


def test_a_function_of_two_inputs_without_records() -> None:
    program = Program()
    both = two_inputs(declare_watermarks=lambda: [W])
    joined = program.source("left", a=0).connect_and_process(program.source("right", b=0), both).with_uid("both")
    program.end(joined.process(one_input()).with_uid("f"))
    found = program.report("f", "w")
    assert (found.cause, through(found)) == (Cause.NOT_EMITTED, ["f", "both"])
    assert found.sentence.endswith(
        "'both' has not sent it; it declares it, has received 0 records, and has not emitted it."
    )


def test_a_function_whose_records_are_filtered_out() -> None:
    program = Program()
    none = program.source("in", a=9).filter(lambda item: False).with_uid("none")
    program.end(none.shuffle().process(emits(W)).with_uid("emitter").process(one_input()).with_uid("f"))
    found = program.report("f", "w", wait_seconds=0)
    assert (found.cause, through(found), found.split) == (Cause.NOT_EMITTED, ["f", "emitter"], None)


class Declaring(Numbers):
    """A source that emits a watermark of its own, but not yet."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [W]


def test_a_source_that_has_not_emitted() -> None:
    program = Program()
    source = program.env.from_source(Declaring({"a": 9}, 99, bounded=False)).with_uid("in")
    program.end(source.process(one_input()).with_uid("f"))
    found = program.report("f", "w")
    assert (found.cause, through(found)) == (Cause.NOT_EMITTED, ["f", "in"])
    assert found.sentence == (
        "'f' has not received the watermark 'w' yet; 'in' has not sent it; it declares it, and has not emitted it."
    )


def test_a_source_whose_splits_are_all_idle_or_unknown() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9).process(one_input()).with_uid("f"))
    job = program.run()
    found = changed(program, job, "f", replace(job.progress.operators["in"], splits=()))
    assert (found.cause, found.split) == (Cause.IDLE, None)
    found = changed(program, job, "f", OperatorProgress("in", "Source"))
    assert found.cause is Cause.NO_RECORDS


def test_a_backlog_that_is_being_read() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9, stop=3, limit=1).process(one_input()).with_uid("f"))
    found = program.report("f", wait_seconds=0)
    assert found.sentence == "Event time of 'f' is 2023-11-14T22:13:21.999Z; it advances.", "it keeps up"
    assert found.cause is Cause.NOTHING


def test_a_function_that_has_not_reported() -> None:
    program = Program()
    joined = program.source("a", strategy(), a=9).connect_and_process(program.source("b", strategy(), b=9), Join())
    program.end(joined.with_uid("join").process(one_input()).with_uid("f"))
    job = program.run()
    found = changed(program, job, "f", replace(job.progress.operators["join"], subtasks=()))
    assert found.cause is Cause.UNKNOWN
    assert found.sentence.endswith("; the progress of the job does not tell what holds it back.")


def test_a_function_without_handlers_is_not_the_cause() -> None:
    program = Program()
    middle = program.source("in", strategy(), a=9).process(one_input()).with_uid("middle")
    program.end(middle.process(one_input()).with_uid("f"))
    job = program.run()
    operator = job.progress.operators["middle"]
    (subtask,) = operator.subtasks
    (only,) = subtask.inputs
    newer = replace(subtask, inputs=(replace(only, event_time=START + 60_000),))  # it is on its way to f
    found = changed(program, job, "f", replace(operator, subtasks=(newer,)))
    assert (found.cause, through(found)) == (Cause.QUIET_SPLIT, ["f", "middle", "in"])


def test_a_split_that_waits_for_another_split_of_its_source() -> None:
    program = Program(step_ms=1)
    source = program.source("in", strategy().with_watermark_alignment(*IN_G), limit=1, a=9, b=1)
    program.end(source.process(one_input()).with_uid("f"))
    job = program.run()
    operator = job.progress.operators["in"]
    slow, fast = sorted(operator.splits, key=lambda split: split.event_time or 0)
    splits = (replace(fast, paused=True, event_time=START), replace(slow, event_time=START - 9, subtask=1))
    found = changed(program, job, "f", replace(operator, splits=splits))
    assert found.cause is Cause.PAUSED_SPLIT
    assert "is paused by watermark alignment, because another split of this source is behind" in found.sentence
    assert found.advice == ""


def test_a_split_without_any_record() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9, b=0).process(one_input()).with_uid("f"))
    found = program.report("f")
    assert (found.cause, found.split) == (Cause.QUIET_SPLIT, "b")
    assert found.sentence.endswith("its split 'b' has not had any record yet, and no idleness is configured.")


def test_the_main_side_waits_for_the_end_of_the_broadcast_side() -> None:
    program = Program()
    side, main = program.source("rules", b=3), program.source("orders", strategy(), a=9)
    waits = main.connect_and_process(side.broadcast(), broadcast_side(), wait_for_broadcast=WaitForBroadcast())
    program.end(waits.with_uid("enrich"))
    found = program.report("enrich")
    assert found.cause is Cause.BROADCAST_WAIT
    assert "it waits for the broadcast side ('rules'): it has not ended" in found.sentence
    assert found.advice == ""


def test_operators_are_found_by_uid_and_name() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9).process(one_input()).with_uid("f").with_name("Totals"))
    report = program.run().watermarks()
    assert report["f"] is report["Totals"]
    with pytest.raises(KeyError, match="in"):
        report["in"]


@pytest.mark.parametrize(
    ("time_ms", "text"), [(0, "1970-01-01T00:00:00Z"), (-1, "1969-12-31T23:59:59.999Z"), (10**17, f"{10**17} ms")]
)
def test_times(time_ms: int, text: str) -> None:
    assert time_text(time_ms) == text
