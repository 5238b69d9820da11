"""Operators that an edit adds to a savepoint, with state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclarations
from dsv2.testing import Stop, TestSource
from tests.counting import COUNT, REST, SEEN, counting, counts_of, run, tens

TIMED = StateDeclarations.value_state("timed", int)


class Timed(OneInputEventTimeStreamProcessFunction[int, Any]):
    """Emits event time, and the value of each key."""

    def uses_states(self) -> Any:
        return [TIMED]

    def open(self, ctx: Any) -> None:
        self.opened = True

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        assert self.opened
        output.collect((record, ctx.state_manager.get_state(TIMED).value()))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("time", timestamp))


def numbered(stream: Any) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    return stream.process(generator.build_as_process_function()).with_uid("times")


def without(stream: Any) -> Any:
    return counting()(numbered(stream))


def with_timed(stream: Any) -> Any:
    timed = numbered(stream)
    before = counting()(timed)
    return before.union(timed.key_by(tens).process(Timed()).with_uid("timed")).with_uid("union")


def plan_of(build: Callable[[Any], Any]) -> Any:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    stream = env.from_source(TestSource[Any](REST)).with_uid("in").with_parallelism(1)
    build(stream).to_sink(CollectSink()).with_uid("out").with_parallelism(1)
    return env.build_plan()


@pytest.fixture
def savepoint(tmp_path: Path) -> Savepoint:
    job, _ = run([*range(10), Stop(), 10, 11, 12], without)
    return Savepoint.open(job.savepoint(tmp_path / "original"))


@pytest.mark.parametrize("parallelism", [2, 3])
def test_added_operator_begins_with_its_state(savepoint: Savepoint, tmp_path: Path, parallelism: int) -> None:
    values = {key: key * 100 for key in range(10)}
    edited = savepoint.edit().add_operator(plan_of(with_timed), "timed").put_state("timed", TIMED, values)
    path = edited.write(tmp_path / "new")
    assert counts_of(path, "timed", "timed") == values
    _, results = run(REST, with_timed, start=path, parallelism=parallelism)
    times = [what for kind, what in results if kind == "time"]
    assert times[0] == 7  # was sent before the savepoint
    assert {(10, 0), (11, 100), (12, 200)} <= set(results)
    assert {(0, 2), (1, 2), (2, 2)} <= set(results)  # the others continue


def test_added_operator_sees_event_time_like_one_that_is_new(savepoint: Savepoint, tmp_path: Path) -> None:
    edited = savepoint.edit().add_operator(plan_of(with_timed), "timed").put_state("timed", TIMED, {5: 1})
    _, with_state = run(REST, with_timed, start=edited.write(tmp_path / "new"))
    _, empty = run(REST, with_timed, start=savepoint.path)
    times = [[what for kind, what in results if kind == "time"] for results in (with_state, empty)]
    assert times[0] == times[1]


def test_dropped_operator_may_be_added_again(savepoint: Savepoint, tmp_path: Path) -> None:
    edited = savepoint.edit().drop_operator("f").add_operator(plan_of(without), "f").put_state("f", COUNT, {1: 50})
    path = edited.write(tmp_path / "new")
    assert counts_of(path) == {1: 50}
    _, results = run(REST, without, start=path)
    assert {(1, 51), (0, 1)} <= set(results)


def test_operator_that_cannot_be_added_is_refused(savepoint: Savepoint) -> None:
    plan, editor = plan_of(with_timed), savepoint.edit()
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: editor.add_operator(plan, "f"), "There is an operator 'f' in the savepoint"),
        (lambda: editor.add_operator(plan, "g"), "no operator 'g' that keeps state"),
        (lambda: editor.add_operator(plan, "out"), "no operator 'out' that keeps state"),
        (
            lambda: editor.add_operator(plan, "timed").put_state("timed", COUNT, {}),
            r"'timed' declares no state 'count'\. It declares: 'timed'",
        ),
        (lambda: editor.add_operator(plan, "timed").put_state("timed", SEEN, {}), "declares no state 'seen'"),
    ]
    for edit, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            edit()
