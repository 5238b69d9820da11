"""The main side of a broadcast connection waits for the broadcast side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, JobError, OutputTag, Watermark, WatermarkDeclaration
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, PlanError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.state import StateDeclarations
from dsv2.streams import WaitForBroadcast
from dsv2.testing import ManualClock, Stop, TestSource, TwoInputBroadcastHarness
from dsv2.watermark import WatermarkHandlingResult, new_builder

COMPLETE = new_builder("complete").type_bool().combine_wait_for_all_channels(True).build()
ANY = new_builder("any").type_bool().build()
VERSION = new_builder("version").type_long().combine_function_min().combine_wait_for_all_channels(True).build()
LIMITS = StateDeclarations.map_state_builder("limits", str, int).build_broadcast()
CHANGES = OutputTag("changes", int)
COUNT = StateDeclarations.value_state("count", int, default=0)


class Alerts(TwoInputBroadcastStreamProcessFunction[int, int, tuple[Any, ...]]):
    """Emits records above the limit, and everything else that it learns."""

    def uses_states(self) -> Any:
        return [LIMITS, COUNT]

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        limit = ctx.state_manager.get_state(LIMITS).get("limit")
        output.collect(("record", record, limit, count.value()))

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        ctx.state_manager.get_state(LIMITS).put("limit", record)

    def on_watermark_from_non_broadcast_input(
        self, watermark: Watermark, output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        output.collect(("watermark", watermark.value))
        return WatermarkHandlingResult.PEEK

    def on_watermark_from_broadcast_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(("from broadcast", watermark.value))
        return WatermarkHandlingResult.PEEK


def parity(record: int) -> int:
    return record % 2


def new_harness(wait: WaitForBroadcast | None, **options: Any) -> TwoInputBroadcastHarness[int, int, tuple[Any, ...]]:
    return TwoInputBroadcastHarness(
        Alerts(), key=parity, wait_for_broadcast=wait, declarations=[COMPLETE, VERSION], **options
    )


def test_records_and_watermarks_wait_in_order() -> None:
    harness = new_harness(WaitForBroadcast())
    harness.non_broadcast_input.push(2)
    harness.non_broadcast_input.push_watermark(VERSION.new_watermark(1))
    harness.non_broadcast_input.push(4)
    harness.non_broadcast_input.end()
    harness.broadcast_input.push(10)
    assert harness.output.elements == []
    assert harness.progress.records_held == 2
    assert not harness.output.ended
    harness.broadcast_input.end()
    assert harness.output.records == [("record", 2, 10, 1), ("watermark", 1), ("record", 4, 10, 2)]
    assert harness.progress.records_held == 0
    assert harness.ended
    assert harness.output.ended


class Careless(Alerts):
    """Fails for records above the limit, after it has counted them. Emits the limits to a side output."""

    def declare_outputs(self) -> Any:
        return [CHANGES]

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        super().process_record_from_non_broadcast_input(record, output, ctx)
        ctx.output(CHANGES, record)
        if record > ctx.state_manager.get_state(LIMITS).get("limit"):
            raise ValueError

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        super().process_record_from_broadcast_input(record, ctx)
        ctx.output(CHANGES, record)
        if record < 0:
            raise ValueError


def test_record_that_has_waited_may_be_skipped() -> None:
    harness = TwoInputBroadcastHarness(
        Careless(), key=parity, wait_for_broadcast=WaitForBroadcast(), error_policy=ErrorPolicy().skip(ValueError)
    )
    harness.non_broadcast_input.push(2, 40, 4)
    harness.broadcast_input.push(10, -1)
    assert harness.side_output(CHANGES).records == [10]
    harness.restart()
    assert harness.progress.records_held == 3
    harness.broadcast_input.end()
    harness.non_broadcast_input.push(60, 6)
    expected = [("record", 2, 10, 1), ("record", 4, 10, 2), ("record", 6, 10, 3)]
    assert harness.output.records == expected
    assert harness.side_output(CHANGES).records == [10, 2, 4, 6]
    assert harness.progress.counters == {"errors_skipped": 3}


def test_full_buffer_is_not_skipped() -> None:
    wait = WaitForBroadcast(max_records=2)
    harness = new_harness(wait, error_policy=ErrorPolicy().skip())
    with pytest.raises(JobError, match="more than 2 records wait for the broadcast side"):
        harness.non_broadcast_input.push(2, 4, 6)


def test_later_records_do_not_wait() -> None:
    harness = new_harness(WaitForBroadcast(COMPLETE))
    harness.non_broadcast_input.push(2)
    harness.broadcast_input.push(10)
    harness.broadcast_input.push_watermark(COMPLETE.new_watermark(True))
    harness.non_broadcast_input.push(4)
    assert harness.output.records == [("from broadcast", True), ("record", 2, 10, 1), ("record", 4, 10, 2)]


@pytest.mark.parametrize(
    ("until", "watermarks", "over_after"),
    [
        (COMPLETE, [COMPLETE.new_watermark(False), VERSION.new_watermark(9), COMPLETE.new_watermark(True)], 3),
        (VERSION, [COMPLETE.new_watermark(True), VERSION.new_watermark(-5)], 2),
        (VERSION.new_watermark(5), [VERSION.new_watermark(4), VERSION.new_watermark(6)], 2),
        (COMPLETE.new_watermark(False), [COMPLETE.new_watermark(False)], 1),
        (
            EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(100),
            [EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(time) for time in (99, 100)],
            2,
        ),
    ],
)
def test_chosen_watermark_ends_the_wait(until: Any, watermarks: list[Watermark], over_after: int) -> None:
    declarations: list[WatermarkDeclaration] = [COMPLETE, VERSION, EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION]
    harness = TwoInputBroadcastHarness(
        Alerts(), key=parity, wait_for_broadcast=WaitForBroadcast(until), declarations=declarations
    )
    harness.non_broadcast_input.push(2)
    for number, watermark in enumerate(watermarks, start=1):
        harness.broadcast_input.push_watermark(watermark)
        assert harness.progress.records_held == (0 if number >= over_after else 1)


def test_watermark_of_every_channel_is_awaited() -> None:
    harness = new_harness(WaitForBroadcast(VERSION), channels=2)
    harness.non_broadcast_input.push(2, channel=1)
    harness.broadcast_input.push_watermark(VERSION.new_watermark(1), channel=0)
    assert harness.progress.records_held == 1
    harness.broadcast_input.push_watermark(VERSION.new_watermark(1), channel=1)
    assert harness.progress.records_held == 0


def test_too_many_records_fail_with_a_report() -> None:
    harness = new_harness(WaitForBroadcast(VERSION, max_records=3))
    harness.non_broadcast_input.push(1, 2)
    harness.restart()
    harness.non_broadcast_input.push(3)
    with pytest.raises(JobError, match=r"more than 3 records wait for the broadcast side, and its watermark 'versi"):
        harness.non_broadcast_input.push(4)


def test_restart_keeps_what_waits() -> None:
    harness = new_harness(WaitForBroadcast(), channels=2)
    for number in range(6):
        harness.non_broadcast_input.push(number, channel=number % 2)
        harness.restart()
    harness.broadcast_input.push(10)
    harness.restart()
    harness.broadcast_input.end()
    assert [record[1] for record in harness.output.records if record[1] % 2 == 0] == [0, 2, 4]
    assert len(harness.output.records) == 6


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_waits_moves_with_its_keys(parallelism: int) -> None:
    def new(**options: Any) -> TwoInputBroadcastHarness[int, int, tuple[Any, ...]]:
        wait = WaitForBroadcast()
        return TwoInputBroadcastHarness(Alerts(), key=lambda record: record, wait_for_broadcast=wait, **options)

    before = [new(parallelism=2, subtask=subtask) for subtask in range(2)]
    for harness in before:
        harness.non_broadcast_input.push(*(number for number in range(20) if harness.owns(number)))
    snapshots = [harness.snapshot() for harness in before]
    found = []
    for subtask in range(parallelism):
        after = new(parallelism=parallelism, subtask=subtask, rescaled=snapshots)
        own = [number for number in range(20, 40) if after.owns(number)]
        after.non_broadcast_input.push(*own)
        assert after.output.elements == []
        after.broadcast_input.push(10)
        after.end()
        assert all(after.owns(record[1]) for record in after.output.records)
        assert all(record[2] == 10 for record in after.output.records)
        assert after.ended
        found += [record[1] for record in after.output.records]
    assert sorted(found) == list(range(40))


def test_program_that_no_longer_waits_continues() -> None:
    before = new_harness(WaitForBroadcast())
    before.non_broadcast_input.push(2)
    after = new_harness(None, snapshot=before.snapshot())
    after.non_broadcast_input.push(4)
    after.restart()
    assert [record[1] for record in after.output.records] == [2, 4]


def test_program_that_begins_to_wait_does_not_stop_what_runs() -> None:
    before = new_harness(None)
    before.non_broadcast_input.push(2)
    after = new_harness(WaitForBroadcast(), snapshot=before.snapshot())
    after.non_broadcast_input.push(4)
    assert [record[1] for record in after.output.records] == [4]


def run_with_main(
    uid: str, rules: list[Any], *, start: Path | None = None, end: Path | None = None, rules_uid: str = "rules"
) -> list[Any]:
    """Run a job whose main side is the source ``uid``, to the end or to the savepoint ``end``."""
    env, sink = ExecutionEnvironment.get_instance(LocalRuntime(batches=[1], clock=ManualClock())), CollectSink[Any]()
    items: list[Any] = [2, 4, Stop(), 6] if start is None else [2, 4, 6]
    main = env.from_source(TestSource[int](items)).with_uid(uid).key_by(parity)
    side = env.from_source(TestSource[int](rules)).with_uid(rules_uid).broadcast()
    alerts = main.connect_and_process(side, Alerts(), wait_for_broadcast=WaitForBroadcast()).with_uid("alerts")
    alerts.to_sink(sink).with_uid("out")
    job = env.execute_async("alerts", savepoint=start, allow_dropped_state=True)
    job.await_termination()
    if end is not None:
        job.savepoint(end)
    return [record[1] for record in sink.results]


@pytest.mark.filterwarnings("ignore::dsv2.errors.DroppedStateWarning")
def test_main_side_cannot_be_replaced_while_it_waits(tmp_path: Path) -> None:
    assert run_with_main("main", [10, 11, Stop(), 12], end=tmp_path / "a") == []
    assert run_with_main("main", [10, 11, 12], start=tmp_path / "a") == [2, 4, 6]
    with pytest.raises(IncompatibleCheckpointError, match=r"alerts.* waits for its broadcast side.*Keep its sender"):
        run_with_main("other", [10, 11, 12], start=tmp_path / "a")


@pytest.mark.filterwarnings("ignore::dsv2.errors.DroppedStateWarning")
def test_another_main_side_does_not_wait_again(tmp_path: Path) -> None:
    assert run_with_main("main", [10], end=tmp_path / "a") == [2, 4]
    assert run_with_main("other", [10], start=tmp_path / "a") == [2, 4, 6]


@pytest.mark.filterwarnings("ignore::dsv2.errors.DroppedStateWarning")
def test_both_sides_cannot_be_replaced_at_once(tmp_path: Path) -> None:
    """They could have changed places."""
    assert run_with_main("main", [10], end=tmp_path / "a") == [2, 4]
    with pytest.raises(IncompatibleCheckpointError, match="they may have changed places"):
        run_with_main("other", [10], start=tmp_path / "a", rules_uid="other rules")


@pytest.mark.filterwarnings("ignore::dsv2.errors.DroppedStateWarning")
def test_waiting_main_side_waits_for_another_broadcast_side(tmp_path: Path) -> None:
    assert run_with_main("main", [10, Stop(), 11], end=tmp_path / "a") == []
    assert run_with_main("main", [20, 21], start=tmp_path / "a", rules_uid="other rules") == [2, 4, 6]


@pytest.mark.parametrize("until", ["complete", True, 5])
def test_until_is_checked(until: Any) -> None:
    with pytest.raises(ConfigurationError, match="until must be a watermark, its declaration or None"):
        WaitForBroadcast(until)


@pytest.mark.parametrize("count", [0, -1, 1.5, True, None])
def test_max_records_is_checked(count: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_records must be a whole number of at least 1"):
        WaitForBroadcast(max_records=count)


def test_wait_is_checked_by_the_plan() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    stream: Any = env.from_collection([1])
    keyed = stream.key_by(parity)
    with pytest.raises(PlanError, match="wait_for_broadcast must be a WaitForBroadcast, not True"):
        keyed.connect_and_process(stream.broadcast(), Alerts(), wait_for_broadcast=True)
    with pytest.raises(PlanError, match="wait_for_broadcast requires a broadcast stream"):
        keyed.connect_and_process(keyed, Alerts(), wait_for_broadcast=WaitForBroadcast())
    alerts = keyed.connect_and_process(stream.broadcast(), Alerts(), wait_for_broadcast=WaitForBroadcast(VERSION))
    alerts.to_sink(CollectSink())
    with pytest.raises(PlanError, match="waits for the watermark 'version' of its broadcast side, but no function"):
        env.execute()


def test_watermark_that_one_channel_can_send_is_refused() -> None:
    with pytest.raises(PlanError, match=r"'any' .* which the first subtask can send alone. Declare it with combine_wa"):
        TwoInputBroadcastHarness(Alerts(), wait_for_broadcast=WaitForBroadcast(ANY), key=parity, declarations=[ANY])
