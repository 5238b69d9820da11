"""States that are converted when a program with a higher version of them continues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.errors import StateDeclarationError, UserFunctionError
from dsv2.extension.window import OneInputWindowStreamProcessFunction, TimeType, WindowStrategy
from dsv2.extension.window.process_functions import windowed
from dsv2.functions import OneInputStreamProcessFunction, TwoInputBroadcastStreamProcessFunction
from dsv2.runtime.rescale import rescale
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.migrations import split_name
from dsv2.sinks import CollectSink
from dsv2.state import (
    AggregateFunction,
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    ReducingStateDeclaration,
    StateDeclaration,
    StateDeclarations,
    StateTtl,
    ValueStateDeclaration,
    aggregate_of,
)
from tests.profiles import examples
from tests.support import Driver, KeptEntries, operator_named

TTL = StateTtl(timedelta(seconds=10))
SUM: AggregateFunction[int, int, int] = aggregate_of(int, lambda value, total: total + value, lambda total: total)


class Function(OneInputStreamProcessFunction[Any, Any]):
    """Has states, which the tests access."""

    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Job:
    """A function on a keyed stream, which can be restarted as another program."""

    def __init__(self, *states: StateDeclaration, entries: KeptEntries | None = None) -> None:
        self._entries = entries
        self.driver = self.new_driver(Function(*states)).open()
        self.driver.pass_time(0)

    def new_driver(self, function: Any) -> Driver:
        env = ExecutionEnvironment.get_instance("local")
        words = env.from_collection(list[str](), "in")
        words.key_by(str).process(function).with_uid("f").with_parallelism(1).to_sink(CollectSink()).with_uid("out")
        return Driver(env.build_plan(), "f", entries=self._entries)

    def restart(self, *states: StateDeclaration) -> None:
        self.restart_from(self.driver.subtask.snapshot(), *states)

    def restart_from(self, blob: bytes, *states: StateDeclaration) -> None:
        self.driver = self.new_driver(Function(*states))
        self.driver.subtask.restore(blob)

    def use(self, state: StateDeclaration, key: str, action: Callable[[Any], Any]) -> Any:
        """``action`` of the handle for ``state`` of ``key``."""
        return self.driver.subtask.head.visit(key, lambda ctx: action(ctx.state_manager.get_state(state)))


def total(version: int = 1, migrate: Any = None, **options: Any) -> ValueStateDeclaration[Any, Any]:
    return ValueStateDeclaration("total", object, version=version, migrate=migrate, **options)


def noting(value: Any, version: int) -> tuple[Any, int]:
    """A converter that shows its arguments."""
    return value, version


def set_to(value: Any) -> Callable[[Any], None]:
    return lambda state: state.update(value)


def value_of(state: Any) -> Any:
    return state.value()


def get(state: Any) -> Any:
    return state.get()


def items(state: Any) -> Any:
    return state.items()


KINDS: dict[str, tuple[StateDeclaration, Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "value": (ValueStateDeclaration("s", Any), set_to(7), value_of, (7, 1)),
    "list": (ListStateDeclaration("s", Any), set_to([7, 8]), get, [(7, 1), (8, 1)]),
    "map": (MapStateDeclaration("s", str, Any), lambda s: s.put("x", 7), items, [("x", (7, 1))]),
    "reducing": (ReducingStateDeclaration("s", Any, max), lambda s: s.add(7), get, (7, 1)),
    "aggregating": (AggregatingStateDeclaration("s", Any, SUM), lambda s: s.add(7), get, (7, 1)),
    "value with ttl": (ValueStateDeclaration("s", Any, ttl=TTL), set_to(7), value_of, (7, 1)),
    "list with ttl": (ListStateDeclaration("s", Any, ttl=TTL), set_to([7, 8]), get, [(7, 1), (8, 1)]),
    "map with ttl": (MapStateDeclaration("s", str, Any, ttl=TTL), lambda s: s.put("x", 7), items, [("x", (7, 1))]),
    "reducing with ttl": (ReducingStateDeclaration("s", Any, max, ttl=TTL), lambda s: s.add(7), get, (7, 1)),
    "aggregating with ttl": (AggregatingStateDeclaration("s", Any, SUM, ttl=TTL), lambda s: s.add(7), get, (7, 1)),
    "list of the subtask": (
        ListStateDeclaration("s", Any, RedistributionMode.REDISTRIBUTABLE), set_to([7]), get, [(7, 1)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_entries", [False, True])
def test_values_of_every_kind_are_converted(kind: str, in_entries: bool) -> None:
    state, write, read, converted = KINDS[kind]
    job = Job(state, entries=KeptEntries() if in_entries else None)
    job.use(state, "a", write)
    newer = replace(state, version=2, migrate=noting)
    job.restart(newer)
    assert job.use(newer, "a", read) == converted
    job.restart(newer)  # it was stored in version 2
    assert job.use(newer, "a", read) == converted


def test_values_expire_after_their_conversion() -> None:
    state = total(ttl=TTL)
    job = Job(state)
    job.use(state, "a", set_to(7))
    newer = total(2, noting, ttl=TTL)
    job.restart(newer)
    job.driver.pass_time(9_999)
    assert job.use(newer, "a", value_of) == (7, 1)
    job.driver.pass_time(10_000)
    assert job.use(newer, "a", value_of) is None


def test_converter_gets_the_version_of_each_value() -> None:
    """Pages that a program has not read keep the version of an earlier one."""
    keys = [f"key {number}" for number in range(1000)]
    entries = KeptEntries()
    job = Job(total(), entries=entries)
    for key in keys:
        job.use(total(), key, set_to(key))
    second = total(2, noting)
    job.restart(second)
    assert job.use(second, keys[0], value_of) == (keys[0], 1)
    third = total(3, noting)
    job.restart(third)
    values = {key: job.use(third, key, value_of) for key in keys}
    again = {key: value for key, (value, version) in values.items() if version == 2}
    assert again[keys[0]] == (keys[0], 1)
    assert 0 < len(again) < len(keys)  # the keys of one page
    assert all(value == (key, 1) for key, value in again.items())
    assert all(values[key] == (key, 1) for key in keys if key not in again)


def test_state_that_was_not_declared_keeps_its_version() -> None:
    other = StateDeclarations.value_state("other", int)
    job = Job(total(2))
    job.use(total(2), "a", set_to(7))
    job.restart(other)
    job.use(other, "a", set_to(1))
    job.restart(total(2, noting))
    assert job.use(total(2, noting), "a", value_of) == 7
    job.restart(other)
    job.use(other, "a", set_to(2))
    job.restart(total(5, noting))
    assert job.use(total(5, noting), "a", value_of) == (7, 2)


@pytest.mark.parametrize("ttl", [None, TTL])
def test_none_removes_the_value(ttl: StateTtl | None) -> None:
    state = ReducingStateDeclaration("s", int, max, ttl=ttl)
    job = Job(state)
    job.use(state, "a", lambda s: s.add(7))
    newer = replace(state, version=2, migrate=lambda value, version: None)
    job.restart(newer)
    assert job.use(newer, "a", get) is None
    job.use(newer, "a", lambda s: s.add(5))
    assert job.use(newer, "a", get) == 5


def test_states_without_converter_are_not_touched() -> None:
    plain = StateDeclarations.value_state("plain", int)
    job = Job(total(), plain)
    job.use(total(), "a", set_to(7))
    job.use(plain, "a", set_to(8))
    job.restart(total(2, noting), plain)
    assert job.use(plain, "a", value_of) == 8
    assert job.use(total(2, noting), "a", value_of) == (7, 1)


@pytest.mark.parametrize("state", [total(), total(ttl=TTL)])
def test_error_names_operator_state_and_key(state: StateDeclaration) -> None:
    job = Job(state)
    job.use(state, "a", set_to("seven"))
    newer = replace(state, version=2, migrate=lambda value, version: int(value))
    job.restart(newer)
    with pytest.raises(UserFunctionError, match="invalid literal for int") as failed:
        job.use(newer, "a", value_of)
    assert failed.value.callback == "migrate of ValueState 'total'"
    assert failed.value.operator == "KeyedProcess (uid 'f')"
    assert failed.value.location.startswith(__file__)
    assert failed.value.key == "'a'"


class Windows(OneInputWindowStreamProcessFunction[str, Any]):
    """Appends to a state of the window, and emits it."""

    def __init__(self, state: StateDeclaration) -> None:
        self.state = state

    def use_window_states(self) -> list[StateDeclaration]:
        return [self.state]

    def on_record(self, record: Any, output: Any, ctx: Any, window: Any) -> None:
        window.get_window_state(self.state).add(record)

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(window.get_window_state(self.state).get())


def test_states_of_windows_are_converted() -> None:
    seen = StateDeclarations.list_state("seen", str)
    strategy = WindowStrategy.tumbling(timedelta(seconds=1), TimeType.PROCESSING)
    job = Job()
    job.driver = job.new_driver(windowed(strategy, Windows(seen))).open()
    job.driver.pass_time(0)
    job.driver.send("a", "a")
    blob = job.driver.subtask.snapshot()
    job.driver = job.new_driver(windowed(strategy, Windows(replace(seen, version=2, migrate=noting))))
    job.driver.subtask.restore(blob)
    job.driver.pass_time(0)
    job.driver.send("a")
    job.driver.pass_time(1_000)
    assert job.driver.sent_to("out")[-1] == [("a", 1), ("a", 1), "a"]


def test_rescaled_subtask_state_keeps_its_version() -> None:
    state = ListStateDeclaration("s", int, RedistributionMode.REDISTRIBUTABLE, version=3)
    job = Job(state)
    job.use(state, "a", set_to([1, 2]))
    plan = job.driver._plan
    codec = Codec(TypeRegistry.of(plan))
    first, second = rescale([job.driver.subtask.snapshot()], [operator_named(plan, "f")], 2, codec, plan.declarations)
    newer = replace(state, version=4, migrate=noting)
    for blob, expected in ((first, [(1, 3)]), (second, [(2, 3)])):
        job.restart_from(blob, newer)
        assert job.use(newer, "a", get) == expected


def with_subtask_states(job: Job, states: dict[str, Any]) -> bytes:
    """The snapshot of ``job`` with other subtask states."""
    codec = Codec(TypeRegistry())
    state, edges = codec.unseal(BlobKind.STATE, job.driver.subtask.snapshot(), "State")
    state["f"]["subtask_state"] = {name: codec.dumps(content) for name, content in states.items()}
    return codec.seal(BlobKind.STATE, (state, edges))


def test_elements_that_subtasks_hand_over_in_several_versions_are_merged() -> None:
    """Not every subtask has converted its list when the parallelism changes."""
    newest = ListStateDeclaration("s", Any, RedistributionMode.REDISTRIBUTABLE, version=4, migrate=noting)
    job = Job(newest)
    job.restart_from(with_subtask_states(job, {"s@4": [7], "s@3": [2], "s": [1]}), newest)
    assert job.use(newest, "a", get) == [(1, 1), (2, 3), 7]
    job.restart(newest)
    assert job.use(newest, "a", get) == [(1, 1), (2, 3), 7]


class Rules(TwoInputBroadcastStreamProcessFunction[str, str, Any]):
    def __init__(self, rules: StateDeclaration) -> None:
        self.rules = rules

    def uses_states(self) -> list[StateDeclaration]:
        return [self.rules]

    def process_record_from_non_broadcast_input(self, record: str, output: Any, ctx: Any) -> None: ...
    def process_record_from_broadcast_input(self, record: str, ctx: Any) -> None: ...


def with_rules(rules: StateDeclaration) -> Driver:
    env = ExecutionEnvironment.get_instance("local")
    words, sent = (env.from_collection(list[str](), name) for name in ("words", "rules"))
    both = words.key_by(str).connect_and_process(sent.broadcast(), Rules(rules))
    both.with_uid("f").with_parallelism(1).to_sink(CollectSink())
    return Driver(env.build_plan(), "f")


@pytest.mark.parametrize(
    ("stored", "expected"), [({"rules": {"x": 1}}, {"x": (1, 1)}), ({"rules": {"x": 1}, "rules@2": {"x": 2}}, {"x": 2})]
)
def test_broadcast_state_is_converted(stored: dict[str, Any], expected: dict[str, Any]) -> None:
    """Of copies in several versions, the newest is kept."""
    rules = BroadcastStateDeclaration("rules", str, Any, version=2, migrate=noting)
    job = Job()
    job.driver = with_rules(rules).open()
    blob = with_subtask_states(job, stored)
    job.driver = with_rules(rules)
    job.driver.subtask.restore(blob)
    assert dict(job.use(rules, "a", items)) == expected


def add_version(value: list[int], version: int) -> list[int]:
    """A converter of lists: a number, and all versions that it was stored in."""
    return [*value, version + 1]


def read_back(job: Job, state: ValueStateDeclaration[Any, Any], key: str, written: dict[str, tuple[int, int]]) -> None:
    value = job.use(state, key, value_of)
    if key not in written:
        assert value is None
        return
    number, *versions = value
    assert (number, versions[0]) == written[key]
    assert versions == sorted(set(versions))
    assert versions[-1] <= state.version


@examples(30)
@given(st.lists(st.tuples(st.sampled_from(["write", "read", "upgrade", "crash"]), st.integers(0, 99)), max_size=40))
def test_values_pass_through_rising_versions(steps: list[tuple[str, int]]) -> None:
    """However a job is upgraded and crashes, each value is the last one written, and is never converted back."""
    version, written, committed = 1, dict[str, tuple[int, int]](), dict[str, tuple[int, int]]()
    job = Job(total(1, add_version))
    keys = [f"key {number}" for number in range(100)]
    blob = job.driver.subtask.snapshot()
    for number, (action, index) in enumerate(steps):
        state, key = total(version, add_version), keys[index]
        if action == "write":
            job.use(state, key, set_to([number, version]))
            written[key] = number, version
        elif action == "crash":
            job.restart_from(blob, state)
            written = dict(committed)
        else:
            version += action == "upgrade"
            blob, committed = job.driver.subtask.snapshot(), dict(written)
            job.restart_from(blob, total(version, add_version))
            read_back(job, total(version, add_version), key, written)
    for key in keys:
        read_back(job, total(version, add_version), key, written)


def test_version_is_part_of_the_stored_name() -> None:
    assert split_name("total") == ("total", 1)
    assert split_name("total@12") == ("total", 12)
    assert split_name("@12") == ("@12", 1)
    assert split_name("a@b") == ("a@b", 1)


@pytest.mark.parametrize("version", [0, -1, True, 1.5, "2"])
def test_version_must_be_a_positive_number(version: Any) -> None:
    with pytest.raises(StateDeclarationError, match="version must be a whole number of at least 1"):
        total(version)


@pytest.mark.parametrize("migrate", [7, lambda value: value])
def test_converter_takes_two_arguments(migrate: Any) -> None:
    with pytest.raises(StateDeclarationError, match="migrate must be a callable \\(old_value, old_version\\) -> value"):
        total(2, migrate)


def test_name_must_not_look_like_a_version() -> None:
    with pytest.raises(StateDeclarationError, match="must not end with @ and a number"):
        StateDeclarations.value_state("total@2", int)
    StateDeclarations.value_state("total@two", int)


def test_builders_take_versions_and_converters() -> None:
    options: Any = {"version": 2, "migrate": noting}
    made: list[StateDeclaration] = [
        StateDeclarations.value_state("s", int, 1, **options),
        StateDeclarations.list_state("s", int, **options),
        StateDeclarations.list_state_builder("s", int, **options).redistribute_by("union").build(),
        StateDeclarations.map_state("s", str, int, **options),
        StateDeclarations.map_state_builder("s", str, int, **options).build(),
        StateDeclarations.map_state_builder("s", str, int, **options).build_broadcast(),
        StateDeclarations.reducing_state("s", int, max, **options),
        StateDeclarations.aggregating_state("s", int, SUM, **options),
    ]
    assert {(state.version, state.migrate) for state in made} == {(2, noting)}
    assert isinstance(made[5], BroadcastStateDeclaration)
    assert not made[0].matches(StateDeclarations.value_state("s", int, 1))
    assert made[0].matches(StateDeclarations.value_state("s", int, 1, version=2, migrate=lambda value, version: value))
