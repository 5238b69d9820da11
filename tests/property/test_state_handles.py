"""Every handle compared with a plain dict, through random keys, times, expiry and restores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeAlias, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.runtime.exchange.collector import CurrentTimestamp
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.function_states import FunctionStates
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState
from dsv2.runtime.state.timers import BatchTime
from dsv2.runtime.state.ttl_handles import EventClock
from dsv2.state import RedistributionStrategy, StateDeclaration, StateDeclarations, StateTtl, TtlUpdate, aggregate_of
from tests.durations import ms
from tests.profiles import examples
from tests.strategies import long_lists
from tests.support import CountingCodec, one_input

Step: TypeAlias = tuple[str, Any, Any]

DURATION = 10
LIFETIMES = {
    "for ever": None,
    "since written": StateTtl(ms(DURATION)),
    "since read": StateTtl(ms(DURATION), TtlUpdate.ON_READ_AND_WRITE),
    "since written, in event time": StateTtl(ms(DURATION), time_characteristic="event-time"),
    "since read, in event time": StateTtl(ms(DURATION), TtlUpdate.ON_READ_AND_WRITE, "event-time"),
}


def joined(values: list[str]) -> str:
    return "+".join(values)


def with_value(value: str, values: list[str]) -> list[str]:
    return [*values, value]


def declared(kind: str, ttl: StateTtl | None) -> Any:
    match kind:
        case "value":
            return StateDeclarations.value_state("s", str, ttl=ttl)
        case "default":
            return StateDeclarations.value_state("s", str, "none", ttl=ttl)
        case "list":
            return StateDeclarations.list_state("s", str, ttl=ttl)
        case "map":
            return StateDeclarations.map_state("s", int, str, ttl=ttl)
        case "reducing":
            return StateDeclarations.reducing_state("s", str, lambda one, other: f"{one}+{other}", ttl=ttl)
        case _:
            return StateDeclarations.aggregating_state("s", list[str], aggregate_of(list, with_value, joined), ttl=ttl)


def _fail(state: StateDeclaration, key: Any, error: BaseException) -> NoReturn:
    raise AssertionError(f"{state}, key {key}") from error


class EventTime:
    """``EventTimeOfInputs`` whose time equals ``time``."""

    def __init__(self, time: BatchTime) -> None:
        self._time = time

    @property
    def current(self) -> int:
        return self._time.now_ms


class Held:
    """The states of one operator, as a subtask holds them. A micro-batch begins whenever time passes."""

    def __init__(self, *declarations: StateDeclaration, codec: Codec | None = None, remember: bool = False) -> None:
        self._declarations = declarations
        self._codec = codec or Codec(TypeRegistry())
        self._remember = remember
        self.time = BatchTime(0)
        self._build()

    def _build(self) -> None:
        self.store = PagedKeyedStore(self._codec, "Keyed state", self._remember)
        self.partition = PartitionState(True, self.store)
        function = one_input(uses_states=lambda: self._declarations)
        clock = EventClock(cast(Any, EventTime(self.time)), CurrentTimestamp())
        self.states = FunctionStates(
            function, self.store, self.partition, self._codec, self.time, clock, "State", _fail
        )

    def handle(self, declaration: StateDeclaration, key: Any) -> Any:
        self.partition.key = key
        return self.partition.get_state(declaration)

    def snapshot(self) -> Any:
        return self.store.snapshot(), self.states.snapshot()

    def restore(self, snapshot: Any) -> None:
        self._build()
        self.store.restore(snapshot[0])
        self.states.restore(snapshot[1])

    def restart(self) -> None:
        self.restore(self.snapshot())


class Model:
    """A model of any keyed state: values in slots of keys, each with its expiry time."""

    def __init__(self, ttl: StateTtl | None) -> None:
        self.now = 0
        self._ttl = ttl
        self._slots: dict[Any, dict[Any, tuple[str, float]]] = {}
        self._next = 0

    def read(self, key: Any, *slots: Any) -> dict[Any, str]:
        """Return the values of ``slots``, or of all. Reading may extend their life."""
        there = self.peek(key)
        found = {slot: value for slot, value in there.items() if not slots or slot in slots}
        if self._ttl is not None and self._ttl.update is TtlUpdate.ON_READ_AND_WRITE:
            for slot, value in found.items():
                self._slots[key][slot] = value, self.now + DURATION
        return found

    def peek(self, key: Any) -> dict[Any, str]:
        slots = {slot: cell for slot, cell in self._slots.get(key, {}).items() if cell[1] > self.now}
        self._slots[key] = slots
        return {slot: value for slot, (value, _) in slots.items()}

    def write(self, key: Any, slot: Any, value: str) -> None:
        self.peek(key)
        self._slots[key][slot] = value, float("inf") if self._ttl is None else self.now + DURATION

    def append(self, key: Any, *values: str) -> None:
        for value in values:
            self._next += 1
            self.write(key, self._next, value)

    def remove(self, key: Any, *slots: Any) -> None:
        """Remove ``slots``, or all."""
        for slot in slots or list(self.peek(key)):
            self._slots.get(key, {}).pop(slot, None)

    def keys_with_values(self) -> set[Any]:
        return {key for key in self._slots if self.peek(key)}

    def snapshot(self) -> dict[Any, Any]:
        return {key: dict(slots) for key, slots in self._slots.items()}

    def restore(self, snapshot: dict[Any, Any]) -> None:
        self._slots = {key: dict(slots) for key, slots in snapshot.items()}


def use_value(default: str | None, model: Model, state: Any, key: Any, what: int, arg: int) -> None:
    if what < 2:
        state.update(str(arg))
        model.write(key, None, str(arg))
    elif what == 2:
        found = model.read(key).get(None, default)
        changed = None if arg == 0 else f"{found}, {arg}"  # None clears it
        assert state.update_with(lambda value: changed if value == found else "another value") == changed
        model.remove(key) if changed is None else model.write(key, None, changed)
    elif what == 3:
        [state.clear, lambda: state.update(None)][arg % 2]()
        model.remove(key)
    else:
        assert state.value() == model.read(key).get(None, default)


def use_list(model: Model, state: Any, key: Any, what: int, arg: int) -> None:
    values = [str(n) for n in range(arg)]
    match what:
        case 0:
            state.add(str(arg))
            model.append(key, str(arg))
        case 1:
            state.add_all(iter(values))
            model.append(key, *values)
        case 2:
            state.update(iter(values))
            model.remove(key)
            model.append(key, *values)
        case 3:
            state.clear()
            model.remove(key)
        case _:
            assert state.get() == list(model.read(key).values())


def use_map(model: Model, state: Any, key: Any, what: int, arg: int) -> None:
    match what:
        case 0:
            state.put(arg, str(key))
            model.write(key, arg, str(key))
        case 1:
            entries = {slot: f"{slot} of {key}" for slot in range(arg)}
            state.put_all(entries)
            for slot, value in entries.items():
                model.write(key, slot, value)
        case 2:
            state.remove(arg)
            model.remove(key, arg)
        case 3 if arg == 0:
            state.clear()
            model.remove(key)
        case 3:
            assert state.get(arg) == model.read(key, arg).get(arg)
            assert state.get(arg, "none") == model.read(key, arg).get(arg, "none")
        case 4 if arg == 0:
            before = model.read(key, 1).get(1, "none")
            assert state.update_with(1, lambda value: f"{value}, {key}", "none") == f"{before}, {key}"
            model.write(key, 1, f"{before}, {key}")
        case 4 if arg == 1:
            old = f"{model.read(key, 2).get(2)}"
            assert state.update_with(2, lambda value: f"{value}, {key}") == f"{old}, {key}"
            model.write(key, 2, f"{old}, {key}")
        case 4:
            assert (len(state), state.is_empty()) == (len(model.peek(key)), not model.peek(key))
            assert state.contains(arg) is (arg in state) is (arg in model.read(key, arg))
        case _:
            assert sorted([state.keys(), list(state)][arg % 2]) == sorted(model.read(key))
            assert sorted(state.values()) == sorted(model.read(key).values())
            assert dict(state.items()) == model.read(key)


def use_folded(model: Model, state: Any, key: Any, what: int, arg: int) -> None:
    """The values so far are one value, which expires after the last addition."""
    if what < 3:
        state.add(str(arg))
        before = model.read(key).get(None)
        model.write(key, None, str(arg) if before is None else f"{before}+{arg}")
    elif what == 3:
        state.clear()
        model.remove(key)
    else:
        assert state.get() == model.read(key).get(None)


USES: dict[str, Callable[..., None]] = {
    "value": lambda *args: use_value(None, *args),
    "default": lambda *args: use_value("none", *args),
    "list": use_list,
    "map": use_map,
    "reducing": use_folded,
    "aggregating": use_folded,
}

STEPS: st.SearchStrategy[list[Step]] = long_lists(
    st.tuples(
        st.sampled_from(["use", "use", "use", "use", "pass", "pass", "sweep", "restart", "snapshot", "fail"]),
        st.tuples(st.integers(0, 1), st.integers(0, 5)),  # a key, and the operation on its state
        st.integers(0, 2),
    ),
    max_size=50,
)


@pytest.mark.parametrize("lifetime", LIFETIMES)
@pytest.mark.parametrize("kind", USES)
@examples(25)
@given(steps=STEPS)
def test_handle_is_a_view_on_a_dict(kind: str, lifetime: str, steps: list[Step]) -> None:
    declaration = declared(kind, LIFETIMES[lifetime])
    held, model = Held(declaration), Model(LIFETIMES[lifetime])
    last = held.snapshot(), model.snapshot()
    for step, (key, what), arg in steps:
        match step:
            case "use":
                USES[kind](model, held.handle(declaration, key), key, what, arg)
            case "pass":
                held.time.now_ms = model.now = model.now + (1, 5, DURATION)[arg]
            case "sweep":
                held.states.expire()
            case "snapshot":
                last = held.snapshot(), model.snapshot()
            case "restart":
                held.restart()
            case "fail":  # changes since the last snapshot are lost, but not the time
                held.restore(last[0])
                model.restore(last[1])
    held.partition.key = NO_KEY
    held.states.expire()
    held.store.snapshot()
    assert set(held.store) == model.keys_with_values()
    for key in range(4):
        USES[kind](model, held.handle(declaration, key), key, 5, 0)


SHARED: dict[str, tuple[Any, Callable[..., None]]] = {
    "list": (
        StateDeclarations.list_state_builder("s", str).redistribute_by(RedistributionStrategy.SPLIT).build(),
        use_list,
    ),
    "map": (StateDeclarations.map_state_builder("s", int, str).build_broadcast(), use_map),
}


@pytest.mark.parametrize("kind", SHARED)
@given(steps=STEPS)
def test_subtask_state_is_one_dict_for_all_keys(kind: str, steps: list[Step]) -> None:
    declaration, use = SHARED[kind]
    held, model = Held(declaration), Model(None)
    last = held.snapshot(), model.snapshot()
    for step, (key, what), arg in steps:
        match step:
            case "use":
                use(model, held.handle(declaration, (key, NO_KEY)[arg % 2]), None, what, arg)
            case "snapshot":
                last = held.snapshot(), model.snapshot()
            case "restart":
                held.restart()
            case "fail":
                held.restore(last[0])
                model.restore(last[1])
    use(model, held.handle(declaration, NO_KEY), None, 5, 0)
    assert len(held.store) == 0


@pytest.mark.parametrize("kind", USES)
@given(steps=STEPS)
def test_expired_state_leaves_nothing(kind: str, steps: list[Step]) -> None:
    """Whatever the operations: when all has expired, the state equals the initial one."""
    declaration = declared(kind, StateTtl(ms(DURATION)))
    held, model = Held(declaration), Model(StateTtl(ms(DURATION)))
    empty = held.store.snapshot()
    for step, (key, what), arg in steps:
        if step == "pass":
            held.time.now_ms = model.now = model.now + (1, 5, DURATION)[arg]
        elif step == "restart":
            held.restart()
        else:
            USES[kind](model, held.handle(declaration, key), key, what, arg)
    held.time.now_ms += DURATION
    held.states.expire()
    assert held.store.snapshot() == empty


@given(long_lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 8)), max_size=40))
def test_states_with_different_ttl_share_a_key(steps: list[tuple[int, int, int]]) -> None:
    declarations = [
        StateDeclarations.value_state("0", int, ttl=StateTtl(ms(3))),
        StateDeclarations.value_state("1", int, ttl=StateTtl(ms(11))),
        StateDeclarations.value_state("2", int),
        StateDeclarations.value_state("3", int, ttl=StateTtl(ms(7))),
    ]
    lives = [3, 11, 10**9, 7]
    held = Held(*declarations)
    expiry: dict[tuple[int, int], int] = {}
    for key, number, passing in steps:
        held.handle(declarations[number], key).update(1)
        expiry[key, number] = held.time.now_ms + lives[number]
        held.time.now_ms += passing
        held.states.expire()
        for there in range(4):
            names = {*(held.store.find(there) or {}), *dict(held.store.columns_of(there))}
            alive = {str(n) for n in range(4) if expiry.get((there, n), 0) > held.time.now_ms}
            assert {name for name in names if isinstance(name, str)} == alive


def test_expiry_decodes_only_expired_pages() -> None:
    declaration = declared("value", StateTtl(ms(DURATION)))
    codec = CountingCodec()
    held = Held(declaration, codec=codec)
    held.handle(declaration, "old").update("x")
    held.time.now_ms = 1
    for key in range(10_000):
        held.handle(declaration, key).update("x")
    held.restart()
    codec.decoded = codec.encoded = 0
    held.time.now_ms = DURATION
    held.states.expire()
    assert len(held.store) == 10_001
    held.store.snapshot()
    assert len(held.store) == 10_000
    assert (codec.decoded, codec.encoded) == (2, 2), "a page, and what is known of the deadlines of pages"


def test_early_deadline_is_postponed() -> None:
    """A value that is written all the time costs one check per lifetime."""
    declaration = declared("value", StateTtl(ms(DURATION)))
    held = Held(declaration)
    deadlines = []
    for now in range(5 * DURATION):
        held.time.now_ms = now
        held.states.expire()
        held.handle(declaration, "key").update(str(now))
        deadlines.append(held.store.find("key")[2])  # type: ignore[index]
    assert len({tuple(deadline) for deadline in deadlines}) <= 6
    assert held.handle(declaration, "key").value() == str(now)


def test_elements_of_a_list_expire_separately() -> None:
    declaration = declared("list", StateTtl(ms(DURATION)))
    held = Held(declaration)
    left = {}
    for now in range(0, 20, 2):
        held.time.now_ms = now
        held.states.expire()
        if now < DURATION:
            held.handle(declaration, "key").add(str(now))
        left[now] = [value for value, _ in (held.store.find("key") or {}).get("s", [])]
    assert left[8] == ["0", "2", "4", "6", "8"]
    assert {now: values for now, values in left.items() if now >= DURATION} == {
        10: ["2", "4", "6", "8"],
        12: ["4", "6", "8"],
        14: ["6", "8"],
        16: ["8"],
        18: [],
    }
