"""Savepoints that are edited, and jobs that start from them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment, JobError, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.errors import ConfigurationError, CorruptDataError, IncompatibleCheckpointError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.state.rows import RowKind
from dsv2.savepoint import Savepoint, SavepointEditor
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.source_positions import check_new_position
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.state import StateDeclarations
from dsv2.testing import ManualClock, Stop, TestSource
from tests.counting import COUNT, REST, SEEN, Counting, counting, counts_of, results_of, run, tens
from tests.durations import ms
from tests.spans import Spans
from tests.windows import StatefulWindowRecorder, WindowRecorder


@pytest.fixture
def savepoint(tmp_path: Path) -> Savepoint:
    """Ten of thirteen records were read: 0, 1, ..., 9."""
    job, _ = run([*range(10), Stop(), 10, 11, 12], counting())
    return Savepoint.open(job.savepoint(tmp_path / "original"))


def test_edit_without_changes_is_a_copy(savepoint: Savepoint, tmp_path: Path) -> None:
    copy = Savepoint.open(savepoint.edit().write(tmp_path / "new"))
    copy.verify()
    assert not savepoint.diff(copy)
    assert copy.origin == savepoint.origin
    assert copy.info.savepoint_id != savepoint.info.savepoint_id


def rows_of(path: str, uid: str, kind: RowKind) -> list[Any]:
    codec = Codec(StandIns())
    rows = [row for row in SavepointReader(LocalFolder(path)).rows(uid) if row.kind is kind]
    return [codec.loads(row.value or b"", "row") for row in rows]


def test_renamed_savepoint_is_that_of_the_renamed_program(savepoint: Savepoint, tmp_path: Path) -> None:
    number = StateDeclarations.value_state("number", int, default=0)
    job, _ = run([*range(10), Stop(), 10, 11, 12], counting("g", number), source="words")
    expected = Savepoint.open(job.savepoint(tmp_path / "expected"))
    edited = savepoint.edit().rename_operator("in", "words").rename_operator("f", "g")
    path = edited.rename_state("g", "count", "number").write(tmp_path / "new")
    found = Savepoint.open(path).diff(expected)
    assert (found.program, found.positions, found.tables) == ([], {}, {})
    ((of_edited, of_other),) = found.sinks.values()  # the other job is not the one that is continued
    assert of_edited is not None
    assert of_other == replace(of_edited, job_id=expected.origin.job_id)
    assert sorted(rows_of(path, "g", RowKind.EDGE)) == sorted(rows_of(expected.path, "g", RowKind.EDGE))
    names = {name for name, _ in rows_of(path, "g", RowKind.EDGE)}
    assert names == {("g", 0, "out", 0)}


def test_renamed_operator_continues(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().rename_operator("f", "counts").rename_operator("in", "words").write(tmp_path / "new")
    Savepoint.open(path).verify()
    _, results = run(REST, counting("counts"), start=path, source="words")
    assert sorted(result for result in results if isinstance(result[1], int)) == [(0, 2), (1, 2), (2, 2)]
    assert results_of(results, "timer") == results_of(results, "end") == set(range(10))
    with pytest.raises(IncompatibleCheckpointError, match="operator 'counts'"):
        run(REST, counting(), start=path, source="words")


def test_renamed_state_continues_also_in_a_field_of_the_function(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().rename_state("f", "count", "number").write(tmp_path / "new")
    assert Savepoint.open(path).operators["f"] == ("number", "seen")
    renamed = counting(count=StateDeclarations.value_state("number", int, default=0))
    _, results = run(REST, renamed, start=path, parallelism=3)
    assert (2, 2) in results


def test_dropped_state_begins_again_and_its_keys_stay(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().drop_state("f", "count").write(tmp_path / "new")
    _, results = run(REST, counting(), start=path)
    assert sorted(result for result in results if isinstance(result[1], int)) == [(0, 1), (1, 1), (2, 1)]
    assert results_of(results, "end") == set(range(10))


class WithoutTimers(Counting):
    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)


@pytest.mark.parametrize(
    "edit",
    [
        lambda editor: editor.drop_state("f", "count"),
        lambda editor: editor.map_state("f", "count", lambda key, value: None),
        lambda editor: editor.put_state("f", COUNT, {}),
    ],
    ids=["drop", "map", "put"],
)
def test_keys_without_values_are_visited(tmp_path: Path, edit: Callable[[SavepointEditor], SavepointEditor]) -> None:
    def build(stream: Any) -> Any:
        return stream.key_by(tens).process(WithoutTimers()).with_uid("f")

    job, _ = run([*range(10), Stop(), 10], build)
    path = edit(Savepoint.open(job.savepoint(tmp_path / "a")).edit()).write(tmp_path / "b")
    _, results = run([*range(10), 10], build, start=path)
    assert results_of(results, "end") == set(range(10))


def test_dropped_operator_begins_again(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().drop_operator("f").write(tmp_path / "new")
    assert Savepoint.open(path).operators == {"in": ()}
    _, results = run(REST, counting(), start=path)
    assert results_of(results, "end") == {0, 1, 2}


def test_dropped_source_begins_again(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().drop_operator("in").write(tmp_path / "new")
    _, results = run(REST, counting(), start=path)
    assert (2, 3) in results


def test_operator_between_others_begins_again(tmp_path: Path) -> None:
    def build(stream: Any) -> Any:
        first = stream.process(Forward()).with_uid("a").shuffle().process(Forward()).with_uid("b").with_parallelism(3)
        return first.key_by(tens).process(Counting()).with_uid("f")

    job, _ = run([*range(10), Stop(), 10, 11, 12], build)
    path = Savepoint.open(job.savepoint(tmp_path / "a")).edit().drop_operator("b").write(tmp_path / "b")
    assert {name[2] for name, _ in rows_of(str(tmp_path / "a"), "a", RowKind.EDGE)} == {"b"}
    assert rows_of(path, "a", RowKind.EDGE) == []  # so that "b" receives what "a" has sent
    edited = Savepoint.open(path).edit()
    _, results = run(REST, build, start=path)
    assert {(0, 2), (1, 2), (2, 2)} <= set(results)
    renamed = Savepoint.open(tmp_path / "a").edit().rename_operator("b", "c").write(tmp_path / "renamed")
    assert {name[2] for name, _ in rows_of(renamed, "a", RowKind.EDGE)} == {"c"}
    taken = edited.rename_operator("a", "b").write(tmp_path / "c")  # takes the place of the dropped one
    operators = Savepoint.open(taken).info.program.operators
    assert operators["f"].inputs[0].sender == "b (dropped)"


class Forward(OneInputStreamProcessFunction[int, int]):
    """Forwards records, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        self.count += 1
        output.collect(record)


def test_values_are_mapped(savepoint: Savepoint, tmp_path: Path) -> None:
    edited = savepoint.edit().map_state("f", "count", lambda key, value: value + 10 * key if key % 2 else None)
    path = edited.map_state("f", "seen", lambda key, value: [0, *value]).write(tmp_path / "new")
    assert counts_of(path) == {1: 11, 3: 31, 5: 51, 7: 71, 9: 91}
    seen = Savepoint.open(path).state("f", "seen").to_arrow()["value"].to_pylist()
    assert [numbers[0] for numbers in seen] == [0, 0]
    _, results = run(REST, counting(), start=path)
    assert {(1, 12), (0, 1)} <= set(results)
    assert results_of(results, "end") == set(range(10))


def test_values_may_get_another_type(savepoint: Savepoint, tmp_path: Path) -> None:
    text = StateDeclarations.value_state("count", str)
    path = (
        savepoint.edit().map_state("f", "count", lambda _, value: str(value), declaration=text).write(tmp_path / "new")
    )
    assert set(counts_of(path).values()) == {"1"}
    with pytest.raises(IncompatibleCheckpointError, match="its type was str and is now int"):
        run(REST, counting(), start=path)


def test_keys_are_filtered_with_their_timers(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().filter_keys("f", lambda key: key >= 5).write(tmp_path / "new")
    assert counts_of(path) == dict.fromkeys(range(5, 10), 1)
    assert sorted(Savepoint.open(path).timers("f").to_arrow()["key"].to_pylist()) == [5, 6, 7, 8, 9]
    _, results = run(REST, counting(), start=path)
    assert results_of(results, "end") == {0, 1, 2, 5, 6, 7, 8, 9}


def windowed(stream: Any, recorder: Any = None) -> Any:
    generator = EventTimeExtension.new_watermark_generator_builder(abs).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("g")
    return (
        timed.key_by(tens).window(WindowStrategy.tumbling(ms(100))).process(recorder or WindowRecorder()).with_uid("f")
    )


def test_windows_follow_their_operator_and_their_keys(tmp_path: Path) -> None:
    job, _ = run([*range(10), Stop(), 210], windowed)
    original = Savepoint.open(job.savepoint(tmp_path / "a"))
    path = original.edit().filter_keys("f", lambda key: key == 3).rename_operator("f", "h").write(tmp_path / "b")
    _, results = run([*range(10), 210], lambda stream: windowed(stream).with_uid("h"), start=path)
    triggered = [told[1:] for told in results if told[0] == "trigger"]
    assert triggered == [(3, 0, 100, (3,)), (0, 200, 300, (210,))]


def test_source_continues_at_another_position(savepoint: Savepoint, tmp_path: Path) -> None:
    edited = savepoint.edit().set_position("in", {"position": 12})
    assert edited.positions == {"in": {"position": 12}}
    _, results = run(REST, counting(), start=edited.write(tmp_path / "new"))
    assert sorted(result for result in results if isinstance(result[1], int)) == [(2, 2)]
    _, results = run(REST, counting(), start=edited.set_position("in", None).write(tmp_path / "again"))
    assert (2, 3) in results


def test_position_after_the_end_is_refused_at_the_start(savepoint: Savepoint, tmp_path: Path) -> None:
    path = savepoint.edit().set_position("in", {"position": 14}).write(tmp_path / "new")
    with pytest.raises(IncompatibleCheckpointError, match="holds 13 records, but 14 were read before"):
        run(REST, counting(), start=path)


def test_original_stays_and_editors_are_independent(savepoint: Savepoint, tmp_path: Path) -> None:
    before = savepoint.info
    editor = savepoint.edit()
    editor.drop_operator("f")
    assert not savepoint.diff(Savepoint.open(editor.write(tmp_path / "new")))
    assert savepoint.info == before
    (tmp_path / "used").write_text("")
    for path, message in ((savepoint.path, "is in the folder of the orig"), (f"{savepoint.path}/state/a", "is in the")):
        with pytest.raises(ConfigurationError, match=message):
            editor.drop_operator("f").write(path)
    with pytest.raises(ConfigurationError, match="is not empty"):
        editor.write(tmp_path)
    savepoint.verify()


REFUSED: list[tuple[Callable[[Any], object], str]] = [
    (lambda e: e.rename_operator("g", "h"), r"no operator 'g' in the savepoint\. It has: 'f', 'in'"),
    (lambda e: e.rename_operator("f", "in"), "there is an operator 'in'"),
    (lambda e: e.rename_operator("f", ""), "non-empty string"),
    (lambda e: e.drop_operator("out"), "no operator 'out'"),
    (lambda e: e.drop_operator("f").drop_state("f", "count"), "no operator 'f'"),
    (lambda e: e.rename_state("f", "sum", "total"), r"has no state 'sum'\. It has: 'count', 'seen'"),
    (lambda e: e.rename_state("f", "count", "seen"), "there is a state 'seen'"),
    (lambda e: e.rename_state("f", "count", "count@2"), "does not end with @ and a number"),
    (
        lambda e: e.rename_state("f", "count", "n").drop_state("f", "count"),
        r"has no state 'count'\. It has: 'n', 'seen'",
    ),
    (lambda e: e.map_state("f", "count", lambda value: value), r"takes a function \(key, value\) -> value"),
    (lambda e: e.map_state("f", "count", max, declaration=SEEN), "its name is count, and the declaration has seen"),
    (lambda e: e.filter_keys("in", bool), "has no keys"),
    (lambda e: e.filter_keys("f", lambda key, value: True), r"takes a function \(key\) -> bool"),
    (lambda e: e.set_position("f", None), "'f' is not a source"),
    (lambda e: e.set_position("in", {"position": -1}), "'position' must be a whole number of at least 0"),
    (lambda e: e.set_position("in", {"position": True}), "'position' must be a whole number of at least 0"),
    (lambda e: e.set_position("in", {"position": 1, "at": 2}), "unknown part 'at'"),
    (lambda e: e.set_position("in", 7), "a position is a dict"),
    (lambda e: e.put_state("in", COUNT, {}), "is a source"),
    (lambda e: e.put_state("f", StateDeclarations.value_state("count", str), {}), "its types is int, and the decl"),
    (lambda e: e.put_state("f", COUNT, {1: "one"}), r"the value of the row with the key 1: 'one' is not of type int"),
    (lambda e: e.put_state("f", COUNT, {"a": 1}), "the key 'a' cannot be one of this operator, whose keys are int64"),
    (lambda e: e.put_state("f", COUNT, {1: 1}, written_at=datetime.now(UTC)), "has no time to live"),
    (lambda e: e.put_state("f", COUNT, [1]), "give a dict, a pyarrow Table"),
    (lambda e: e.put_state("f", COUNT, pa.table({"k": [1]})), "must have the columns key, value, and has k"),
    (lambda e: e.put_state("f", COUNT, pa.table({"key": [1, 2, 1], "value": [1] * 3})), "the key 1 occurs twice"),
    (lambda e: e.put_state("f", COUNT, pa.table({"key": [None, 1], "value": [1, 2]})), "the key None"),
    (lambda e: e.put_state("f", COUNT, pa.table({"key": [1], "value": pa.nulls(1)})), "it is null"),
    (lambda e: e.put_state("f", SEEN, pa.table({"value": [[1]] * 3})), "at most 2 rows, not 3"),
]


@pytest.mark.parametrize(("edit", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_impossible_edits_are_refused(savepoint: Savepoint, edit: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        edit(savepoint.edit())


def fails(key: int, value: int) -> Any:
    if key == 7:
        raise ValueError("seven")
    return value if key < 8 else "eight"


@pytest.mark.parametrize(
    ("convert", "message"),
    [(fails, "the function raised ValueError for the key 7: seven"), (lambda k, v: str(v), "'1' is not of type int")],
)
def test_failed_write_leaves_nothing(savepoint: Savepoint, tmp_path: Path, convert: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        savepoint.edit().map_state("f", "count", convert).write(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def test_damaged_original_is_noticed(savepoint: Savepoint, tmp_path: Path) -> None:
    file = next(Path(savepoint.path).rglob("*keyed*/*.parquet"))
    data = file.read_bytes()
    file.write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    with pytest.raises(CorruptDataError, match="was changed since the savepoint was taken"):
        savepoint.edit().rename_operator("f", "g").write(tmp_path / "new")
    assert list((tmp_path / "new").iterdir()) == []


def spans(ends: dict[str, int], start: str | None = None) -> tuple[Any, list[Any]]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
    sink = CollectSink[Any]()
    env.from_source(Spans(ends, bounded=False, discovery_interval=ms(1))).with_uid("in").to_sink(sink).with_uid("out")
    env.from_source(TestSource[int]([1, Stop(), 2] if start is None else [1, 2])).with_uid("stop").to_sink(
        CollectSink()
    )
    job = env.execute_async("spans", savepoint=start, trigger=Trigger.available_now())
    job.await_termination()
    return job, sink.results


def test_source_with_splits_continues_at_other_positions(tmp_path: Path) -> None:
    job, _ = spans({"a": 5, "b": 4})
    original = Savepoint.open(job.savepoint(tmp_path / "a"))

    def moved(name: str, position: Any) -> dict[str, Any]:
        offset = copy.deepcopy(dict(original.positions["in"]))
        (split,) = (split for split in offset["readers"][0]["splits"] if split["at"]["name"] == name)
        split["at"]["position"] = position
        return offset

    path = original.edit().set_position("in", moved("a", 3)).write(tmp_path / "b")
    assert sorted(spans({"a": 5, "b": 4}, path)[1]) == [("a", 3), ("a", 4)]
    begin = original.edit().set_position("in", None).write(tmp_path / "c")
    assert len(spans({"a": 5, "b": 4}, begin)[1]) == 9
    offset = moved("a", 3)
    refused: list[tuple[Any, str]] = [
        (moved("a", -1), "'position' of 'at' of .* must not be negative"),
        (moved("a", "3"), "'position' of 'at' of .* must be like 5"),
        ({**offset, "batch": 7}, "'batch' of the offset must stay"),
        ({**offset, "readers": []}, "'readers' of the offset must stay"),
        ({"position": 3}, "the offset must have the parts 'batch'"),
    ]
    for position, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            original.edit().set_position("in", position)


def test_only_its_options_set_the_position_of_a_streaming_dataframe() -> None:
    for after in ({"streams": ["8"]}, None):
        with pytest.raises(ConfigurationError, match="whose position only its own options can set"):
            check_new_position("in", {"streams": ["7"]}, after)


def test_source_that_has_ended_keeps_its_position(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
    for uid, source in (("in", TestSource[Any]([1, Stop(), 2])), ("rules", CollectionSource[Any](["rule"]))):
        env.from_source(source).with_uid(uid).to_sink(CollectSink()).with_uid(f"{uid} out")
    job = env.execute_async("ended")
    job.await_termination()
    original = Savepoint.open(job.savepoint(tmp_path / "a"))
    assert original.positions["rules"] == {"position": 1, "ended": True}
    with pytest.raises(ConfigurationError, match="it has reached its end"):
        original.edit().set_position("rules", {"position": 0})


def test_window_states_are_refused_by_name(tmp_path: Path) -> None:
    job, _ = run([1, Stop(), 210], lambda stream: windowed(stream, StatefulWindowRecorder()))
    editor = Savepoint.open(job.savepoint(tmp_path / "a")).edit()
    assert editor.operators == {"f": (), "g": (), "in": ()}
    with pytest.raises(ConfigurationError, match="is kept in windows"):
        editor.drop_state("f", "records")
