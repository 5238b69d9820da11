"""State of savepoints from tables: replaced in a savepoint, or given to a job that has never run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.savepoint import Savepoint, SavepointEditor, bootstrap
from dsv2.sinks import CollectSink
from dsv2.state import BroadcastStateDeclaration, StateDeclarations, StateTtl
from dsv2.testing import ManualClock, Stop, TestSource
from tests.counting import COUNT, REST, SEEN, Counting, counting, counts_of, results_of, run, tens


@pytest.fixture
def savepoint(tmp_path: Path) -> Savepoint:
    """Ten of thirteen records were read: 0, 1, ..., 9."""
    job, _ = run([*range(10), Stop(), 10, 11, 12], counting())
    return Savepoint.open(job.savepoint(tmp_path / "original"))


def test_state_is_replaced_by_a_table(savepoint: Savepoint, tmp_path: Path) -> None:
    table = savepoint.state("f", "count").to_pandas()
    table["value"] += table["key"]
    path = savepoint.edit().put_state("f", COUNT, table[table["key"] > 1]).write(tmp_path / "new")
    assert counts_of(path) == {key: key + 1 for key in range(2, 10)}
    _, results = run(REST, counting(), start=path, parallelism=3)
    assert {(0, 1), (2, 4)} <= set(results)


class Person(NamedTuple):
    name: str
    born: int


@dataclass(frozen=True)
class Order:
    amount: float
    items: dict[str, int]
    buyer: Person | None = None


ORDER = StateDeclarations.value_state("order", Order)
RECENT = StateDeclarations.map_state("recent", str, int, ttl=StateTtl(timedelta(seconds=1)))


def person_of(record: Person) -> Person:
    return record


class Orders(OneInputStreamProcessFunction[Person, Any]):
    """Emits the state of each person."""

    def uses_states(self) -> Any:
        return [ORDER, RECENT]

    def process_record(self, record: Person, output: Any, ctx: Any) -> None:
        state = ctx.state_manager
        output.collect((record.name, state.get_state(ORDER).value(), sorted(state.get_state(RECENT).items())))
        if state.get_state(ORDER).value() is None:
            state.get_state(ORDER).update(Order(0.5, {}))


def ordering(stream: Any) -> Any:
    return stream.key_by(person_of).process(Orders()).with_uid("orders")


ANN, BOB = Person("Ann", 1970), Person("Bob", 1971)


def test_classes_and_times_to_live(tmp_path: Path) -> None:
    job, _ = run([ANN, Stop()], ordering)
    original = Savepoint.open(job.savepoint(tmp_path / "a"))
    with pytest.raises(ConfigurationError, match=r"holds values of .*Order.*edit\(types="):
        original.edit().map_state("orders", "order", lambda key, value: value)
    person = pa.struct([("name", pa.string()), ("born", pa.int64())])
    keys = pa.array([ANN._asdict(), BOB._asdict()], person)
    items = pa.array([[("x", 1)]] * 2, pa.map_(pa.string(), pa.int64()))
    orders = pa.StructArray.from_arrays([pa.array([2, 3]), items, keys], ["amount", "items", "buyer"])
    table = pa.table({"key": keys, "value": orders})
    recent = pa.table({"key": keys, "value": items})
    with pytest.raises(ConfigurationError, match="has a time to live: give written_at"):
        original.edit().put_state("orders", RECENT, recent, key_type=Person)
    edited = original.edit(types=[Order, Person]).put_state("orders", ORDER, table, key_type=Person)
    edited = edited.put_state("orders", RECENT, recent, key_type=Person, written_at=datetime.fromtimestamp(0, UTC))
    path = edited.map_state("orders", "order", lambda key, value: Order(value.amount + key.born, {})).write(
        tmp_path / "b"
    )
    _, results = run([ANN, ANN, BOB], ordering, start=path)
    assert results == [("Ann", Order(1972.0, {}), [("x", 1)]), ("Bob", Order(1974.0, {}), [("x", 1)])]


RULES = BroadcastStateDeclaration("rules", str, int)


class Ruled(TwoInputBroadcastStreamProcessFunction[int, str, Any]):
    def uses_states(self) -> Any:
        return [RULES]

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record, sorted(ctx.state_manager.get_state(RULES).items())))

    def process_record_from_broadcast_input(self, record: str, ctx: Any) -> None:
        pass


def ruled_pipeline(records: list[Any]) -> tuple[ExecutionEnvironment, CollectSink[Any]]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    stream = env.from_source(TestSource[Any](records)).with_uid("in").with_parallelism(1).key_by(tens)
    rules = env.from_collection(["rule"]).with_uid("rules").broadcast()
    stream.connect_and_process(rules, Ruled()).with_uid("f").to_sink(sink).with_uid("out")
    return env, sink


def test_broadcast_state_is_in_every_subtask(tmp_path: Path) -> None:
    env, sink = ruled_pipeline(list(range(4)))
    rules = pa.table({"value": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    path = bootstrap(env.build_plan("ruled")).put_state("f", RULES, rules).write(tmp_path / "a")
    env.execute("ruled", savepoint=path)
    assert sorted(sink.results) == [(number, [("a", 1)]) for number in range(4)]


def pipeline(records: list[Any], build: Callable[[Any], Any]) -> tuple[ExecutionEnvironment, CollectSink[Any]]:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock()))
    env.set_parallelism(2)
    sink = CollectSink[Any]()
    stream = env.from_source(TestSource[Any](records)).with_uid("in").with_parallelism(1)
    build(stream).to_sink(sink).with_uid("out")
    return env, sink


def test_job_starts_with_the_state_that_it_was_given(tmp_path: Path) -> None:
    env, sink = pipeline(REST, counting())
    history = pa.table({"key": range(2, 100), "value": range(102, 200)})
    seen = pa.table({"value": [[1, 2], [3]]})
    edited = bootstrap(env.build_plan("new")).put_state("f", COUNT, history).put_state("f", SEEN, seen)
    path = edited.set_position("in", {"position": 9}).write(tmp_path / "a")
    savepoint = Savepoint.open(path)
    assert savepoint.origin.batch_id == -1
    assert savepoint.operators == {"f": ("count", "seen"), "in": ()}
    assert counts_of(path) == {key: key + 100 for key in range(2, 100)}
    env.execute("new", savepoint=path)
    assert {(9, 110), (0, 1), (1, 1), (2, 103)} <= set(sink.results)
    assert results_of(sink.results, "end") == set(range(100))


def test_bootstrapped_state_goes_to_any_parallelism(tmp_path: Path) -> None:
    env, _ = pipeline(REST, counting())
    path = bootstrap(env.build_plan()).put_state("f", COUNT, {key: key for key in range(10)}).write(tmp_path / "a")
    _, results = run([*range(10)], counting(), start=path, parallelism=5)
    assert {(key, key + 1) for key in range(10)} <= set(results)


def test_functions_are_opened_with_their_lists(tmp_path: Path) -> None:
    class Opened(Counting):
        def open(self, ctx: Any) -> None:
            self.opened = True

        def process_record(self, record: int, output: Any, ctx: Any) -> None:
            assert self.opened
            output.collect(sorted(ctx.state_manager.get_state(SEEN).get()))

    build: Callable[[Any], Any] = lambda stream: stream.key_by(tens).process(Opened()).with_uid("f")  # noqa: E731
    env, _ = pipeline([5], build)
    seen = pa.table({"value": [[1, 2], [3]]})
    path = bootstrap(env.build_plan()).put_state("f", SEEN, seen).write(tmp_path / "a")
    _, results = run([5], build, start=path, parallelism=1)
    assert results[0] == [1, 2, 3]


def test_keys_have_the_type_of_the_selector(tmp_path: Path) -> None:
    env, sink = pipeline([ANN, BOB], ordering)
    struct = pa.StructArray.from_arrays([pa.array(["Ann"]), pa.array([1970])], ["name", "born"])
    value = pa.StructArray.from_arrays(
        [pa.array([1.5]), pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64()))], ["amount", "items"]
    )
    edited = bootstrap(env.build_plan()).put_state("orders", ORDER, pa.table({"key": struct, "value": value}))
    env.execute(savepoint=edited.write(tmp_path / "a"))
    assert sink.results == [("Ann", Order(1.5, {"x": 1}), []), ("Bob", None, [])]


def test_impossible_starts_are_refused(tmp_path: Path) -> None:
    env, _ = pipeline(REST, counting())
    editor = bootstrap(env.build_plan())
    other = StateDeclarations.value_state("other", int)
    refused: list[tuple[Callable[[], object], str]] = [
        (lambda: editor.put_state("f", other, {}), r"'f' declares no state 'other'\. It declares: 'count', 'seen'"),
        (lambda: editor.put_state("g", COUNT, {}), "no operator 'g'"),
        (
            lambda: editor.put_state("f", COUNT, {1.5: 1}),
            r"the key of the row with the key 1\.5: 1\.5 is not of type int",
        ),
        (lambda: editor.put_state("f", COUNT, {float("nan"): 1}, key_type=float), "NaN cannot be a key"),
        (lambda: editor.set_position("in", {"position": 14}), "it has 13 records"),
    ]
    for edit, message in refused:
        with pytest.raises(ConfigurationError, match=message):
            edit()
    env.set_execution_mode("batch")
    with pytest.raises(ConfigurationError, match="BATCH job has no state"):
        bootstrap(env.build_plan())


def test_dropped_state_leaves_no_deadlines(tmp_path: Path) -> None:
    class Recent(Orders):
        def process_record(self, record: Person, output: Any, ctx: Any) -> None:
            ctx.state_manager.get_state(RECENT).put("x", 1)
            ctx.state_manager.get_state(ORDER).update(Order(0.5, {}))

    def build(stream: Any) -> Any:
        return stream.key_by(person_of).process(Recent()).with_uid("orders")

    job, _ = run([ANN, BOB, Stop()], build)
    original = Savepoint.open(job.savepoint(tmp_path / "a"))

    def deadlines(editor: SavepointEditor, name: str) -> int:
        return len(Savepoint.open(editor.write(tmp_path / name)).timers("orders").to_pandas())

    assert deadlines(original.edit().drop_state("orders", "order"), "b") == 2
    assert deadlines(original.edit().drop_state("orders", "recent"), "c") == 0
    filtered = original.edit(types=[Person]).filter_keys("orders", lambda person: person.name == "Ann")
    assert deadlines(filtered, "d") == 1
    with pytest.raises(CorruptDataError, match=r"name its classes: edit\(types="):
        original.edit().filter_keys("orders", bool).write(tmp_path / "e")
