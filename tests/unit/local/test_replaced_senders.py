"""Starts from a savepoint with other operators around an input that has ended, or whose channels are blocked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobStatus
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.exchange.gate_states import GateState, held_records
from dsv2.sinks import CollectSink
from dsv2.testing import Stop, TestSource
from dsv2.watermark import new_builder

ALIGNED = new_builder("aligned").type_long().combine_wait_for_all_channels(True).aligned().build()


class Forward(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class Ends(Forward):
    """Also reports the end of its input."""

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


class Joined(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class TellsEnds(Joined):
    def end_second_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect("end"))


class Marks(Forward):
    """Emits an aligned watermark after each record that is divisible by ten."""

    def declare_watermarks(self) -> Any:
        return [ALIGNED]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)
        if record % 10 == 0:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(ALIGNED.new_watermark(record))


def run(
    build: Callable[[ExecutionEnvironment, Any, Any], None],
    items: list[Any],
    *,
    start: Path | None = None,
    end: Path | None = None,
    **options: Any,
) -> list[Any]:
    """Run a job to ``end``, a savepoint, or to its end. ``build`` gets the environment, its source and its sink."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2]))
    sink = CollectSink[Any]()
    build(env, env.from_source(TestSource[Any](items)).with_uid("live"), sink)
    job = env.execute_async("replaced", savepoint=start, **options)
    job.await_termination()
    if end is None:
        assert job.status is JobStatus.FINISHED
    else:
        job.savepoint(end)
    return sink.results


def after_short(*functions: Any) -> Callable[[Any, Any, Any], None]:
    """A source that ends early, followed by ``functions``, beside the one that goes on."""

    def build(env: Any, live: Any, sink: Any) -> None:
        live.to_sink(CollectSink()).with_uid("other")
        short = env.from_collection([1, 2]).with_uid("short")
        for number, function in enumerate(functions):
            short = short.shuffle().process(function).with_uid(str(number)).with_parallelism(2)
        short.to_sink(sink).with_uid("out of short")

    return build


def test_new_operator_behind_a_source_that_has_ended_receives_the_end(tmp_path: Path) -> None:
    assert run(after_short(), [7, 7, 7, 7, Stop(), 8], end=tmp_path / "a") == [1, 2]
    assert run(after_short(Ends(), Forward()), [7, 7, 7, 7, 8], start=tmp_path / "a") == ["end", "end"]


def joining(function: Any, *, between: bool) -> Callable[[Any, Any, Any], None]:
    def build(env: Any, live: Any, sink: Any) -> None:
        short = env.from_collection([1, 2]).with_uid("short").shuffle()
        if between:
            short = short.process(Forward()).with_uid("new").with_parallelism(2).shuffle()
        joined = live.shuffle().connect_and_process(short, function).with_uid("join").with_parallelism(2)
        joined.to_sink(sink).with_uid("out")

    return build


def test_input_that_has_ended_may_get_another_sender_if_nothing_reacted_to_the_end(tmp_path: Path) -> None:
    run(joining(Joined(), between=False), [1, 2, 3, 4, Stop(), 5, 6], end=tmp_path / "a")
    for between in (False, True):
        assert sorted(run(joining(Joined(), between=between), [1, 2, 3, 4, 5, 6], start=tmp_path / "a")) == [5, 6]


def test_input_whose_end_was_told_may_not_get_another_sender(tmp_path: Path) -> None:
    run(joining(TellsEnds(), between=False), [1, 2, 3, 4, Stop(), 5], end=tmp_path / "a")
    assert run(joining(TellsEnds(), between=False), [1, 2, 3, 4, 5], start=tmp_path / "a") == [5]
    with pytest.raises(IncompatibleCheckpointError, match=r"uid 'join'.*received the end of its input 1 and reacted"):
        run(joining(TellsEnds(), between=True), [1, 2, 3, 4, 5], start=tmp_path / "a")


def test_operator_that_has_passed_on_the_end_may_not_get_another_sender(tmp_path: Path) -> None:
    run(after_short(Forward()), [7, 7, 7, 7, Stop(), 8], end=tmp_path / "a")

    def replaced(env: Any, live: Any, sink: Any) -> None:
        env.from_collection([1, 2]).with_uid("short").to_sink(CollectSink()).with_uid("other")
        live.shuffle().process(Forward()).with_uid("0").with_parallelism(2).to_sink(sink).with_uid("out")

    with pytest.raises(IncompatibleCheckpointError, match=r"uid '0'.*received the end of its input 0"):
        run(replaced, [7, 7, 7, 7, 8], start=tmp_path / "a")


def aligned(*after: str) -> Callable[[Any, Any, Any], None]:
    """Two subtasks emit aligned watermarks to a chain of operators with the uids ``after``."""

    def build(env: Any, live: Any, sink: Any) -> None:
        marked = live.key_by(lambda number: number % 2).process(Marks()).with_uid("marks").with_parallelism(2)
        for uid in after:
            marked = marked.shuffle().process(Forward()).with_uid(uid).with_parallelism(1 + (uid == "b"))
        marked.to_sink(sink).with_uid("out")

    return build


EVEN = [0, 2, 4, 6, Stop(), 1, 3]  # the watermark after 0 blocks the channel of the even numbers
ALL = [0, 2, 4, 6, 1, 3]


@pytest.mark.parametrize("after", [["b", "c"], ["b", "a"]])
def test_held_records_are_not_lost_if_their_sender_is_replaced(tmp_path: Path, after: list[str]) -> None:
    before = run(aligned("a"), EVEN, end=tmp_path / "a")
    assert Counter(before + run(aligned("a"), ALL, start=tmp_path / "a")) == Counter(ALL)
    with pytest.raises(IncompatibleCheckpointError, match=r"'a'.*holds? back records"):
        run(aligned(*after), ALL, start=tmp_path / "a")


def test_held_records_of_a_removed_operator_are_dropped_only_with_permission(tmp_path: Path) -> None:
    before = run(aligned("a", "c"), EVEN, end=tmp_path / "a")
    with pytest.raises(
        IncompatibleCheckpointError, match=r"(?s)'a'.*was removed.*while it holds back records.*would be"
    ):
        run(aligned("c"), ALL, start=tmp_path / "a")
    with pytest.warns(DroppedStateWarning, match="while it holds back records"):
        assert run(aligned("c"), ALL, start=tmp_path / "a", allow_dropped_state=True) == [1, 3]
    assert before == [0]


def test_held_records_that_cannot_be_counted_count_as_one() -> None:
    gate: GateState = (
        1,
        {},
        [],
        [],
        False,
        {0: ("aligned", [([1, 2], [], None, 0), (object(), [], None, 0), ([], [], None, 0)])},
    )
    assert held_records(gate) == 3
