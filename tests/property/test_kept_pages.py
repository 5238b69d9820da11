"""Pages that stay decoded between micro-batches: against a dict, with evictions, crashes and restarts."""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.local.page_log import PageLog
from dsv2.local.state_pages import StatePages
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.page_budget import PageBudget
from dsv2.runtime.state.page_store import in_entries
from dsv2.runtime.state.timers import TimerService
from tests.support import CountingCodec, KeptEntries

OWNER = "State of count"
KEYS = 300
Step: TypeAlias = tuple[str, int, Any]
Values: TypeAlias = dict[int, Any]

VALUES = (
    st.integers() | st.text(max_size=20) | st.tuples(st.integers(), st.text()) | st.lists(st.integers(), max_size=3)
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "add", "remove", "timer", "read", "spill", "commit", "commit", "crash"]),
        st.integers(0, KEYS),
        VALUES,
    ),
    max_size=60,
)


class Stored:
    """A store on a log, and the values that it should have, now and as of the last commit."""

    def __init__(self, folder: str, most: int) -> None:
        self.folder = folder
        self.most = most
        self.values: Values = {}
        self.timers: dict[int, list[int]] = {}
        self.committed: Any = (1, b"", {}, {})
        self.snapshot: Any = None
        self.open()

    def open(self) -> None:
        self.log = PageLog(self.folder, durable=False)
        self.log.recover(writes=True)
        self.budget = PageBudget(self.most)
        pages = in_entries(StatePages(self.log, self.budget).of("count", 0), CODEC, self.budget)
        self.store = PagedKeyedStore(CODEC, OWNER, True, pages)
        self.column = self.store.column("value")
        if self.snapshot is not None:
            self.store.restore(self.snapshot)

    def commit(self) -> None:
        snapshot = self.store.snapshot()
        assert self.budget.size <= self.most
        self.log.commit({"n": b"1"}, [])
        self.snapshot = snapshot
        self.committed = dict(self.values), {key: [*times] for key, times in self.timers.items()}

    def crash(self) -> None:
        if self.snapshot is None:
            return
        self.log.close()
        self.values, timers = dict(self.committed[0]), self.committed[1]
        self.timers = {key: [*times] for key, times in timers.items()}
        self.open()

    def check(self) -> None:
        for key in range(KEYS + 1):
            self.store.touch(key)
            assert repr(self.column.get(key)) == repr(self.values.get(key))
            entry = self.store.find(key) or {}
            assert entry.get(Domain.EVENT_TIME, []) == self.timers.get(key, [])


CODEC = Codec(TypeRegistry())


@given(st.sampled_from([0, 3_000, 20_000, 1 << 30]), st.integers(0, KEYS), STEPS)
def test_behaves_like_a_dict(most: int, before: int, steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = Stored(folder, most)
        for key in range(before):
            stored.store.touch(key)
            stored.column[key] = stored.values[key] = key
        stored.commit()
        for kind, key, value in steps:
            match kind:
                case "set":
                    stored.store.touch(key)
                    stored.column[key] = value
                    stored.values[key] = list(value) if type(value) is list else value
                case "add":  # in place, if it is a list
                    stored.store.touch(key)
                    if type(stored.column.get(key)) is list:
                        stored.column[key].append(key)
                        stored.values[key] = [*stored.values[key], key]
                case "remove":
                    stored.store.touch(key)
                    stored.column.pop(key, None)
                    stored.values.pop(key, None)
                case "timer":
                    stored.store.entry(key)[Domain.EVENT_TIME] = [key]
                    stored.store.add_deadline(Domain.EVENT_TIME, key, key)
                    stored.timers[key] = [key]
                case "read":
                    assert stored.store.find(key) is None or key in stored.store
                case "spill":
                    stored.store.snapshot()
                case "commit":
                    stored.commit()
                case _:
                    stored.crash()
        stored.check()
        stored.commit()
        stored.crash()
        stored.check()
        stored.log.close()


def kept(most: int) -> tuple[PagedKeyedStore, KeptEntries, CountingCodec, dict[Any, Any]]:
    entries, codec = KeptEntries(), CountingCodec()
    store = PagedKeyedStore(codec, OWNER, True, in_entries(entries, codec, PageBudget(most)))
    column = store.column("value")
    for key in range(5_000):
        store.touch(key)
        column[key] = str(key)
    store.snapshot()
    return store, entries, codec, column


def test_a_warm_key_is_neither_read_nor_written_if_it_has_not_changed() -> None:
    store, entries, _, column = kept(1 << 30)
    entries.forget_calls()
    store.touch(7)
    assert column[7] == "7"
    store.snapshot()
    assert not entries.read
    assert not entries.written
    store.touch(7)
    column[7] = "8"
    store.snapshot()
    assert not entries.read
    assert len(entries.written) == 1


def test_the_pages_that_were_not_used_for_the_longest_time_are_evicted() -> None:
    store, entries, _, column = kept(100_000)
    for key in (1, 2, 3):
        store.touch(key)
        store.snapshot()
    for number in range(10):
        for key in (1, 2, 3, *range(10 * number, 10 * number + 10)):
            store.touch(key)
        store.snapshot()
    entries.forget_calls()
    for key in (1, 2, 3):
        store.touch(key)
        assert column[key] == str(key)
    assert not entries.read


def test_a_value_that_can_be_changed_in_place_does_not_stay() -> None:
    """Else two states that were given the same list would share it in a later micro-batch, unless it was evicted."""
    store = PagedKeyedStore(CODEC, OWNER, True, in_entries(KeptEntries(), CODEC, PageBudget(1 << 30)))
    first, second = store.column("first"), store.column("second")
    shared = [1]
    store.touch("key")
    first["key"] = second["key"] = shared
    store.snapshot()
    store.touch("key")
    first["key"].append(2)
    assert second["key"] == [1]


@pytest.mark.parametrize("has_timers", [False, True])
def test_budget_knows_how_much_memory_pages_take(has_timers: bool) -> None:
    entries, budget, count = KeptEntries(), PageBudget(1 << 30), 20_000
    store = PagedKeyedStore(CODEC, OWNER, True, in_entries(entries, CODEC, budget, rows=32))
    timers, column = TimerService(Domain.EVENT_TIME, store), store.column("state")
    tracemalloc.start()
    try:
        for key in range(count):
            store.touch(key)
            column[key] = key + (1 << 40)
            if has_timers:
                timers.register(key, key + (1 << 41))
        store.snapshot()
        entries.kept.clear()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.7 < budget.size / taken < 1.5


def test_use_of_a_micro_batch_is_limited_in_all_maps_together() -> None:
    budget = PageBudget(0, working=1_000)
    first, second = budget.new_map(), budget.new_map()
    assert not first.use(900)
    assert not second.use(100)
    assert not second.use(200)  # has not its part, although all exceed the limit
    assert second.use(600)
    assert not second.use(0)
    assert first.use(1_001)


def test_size_of_a_micro_batch_is_known() -> None:
    """The budget knows what new keys, read pages, timers and windows take, before anything is stored."""
    count = 20_000
    store = PagedKeyedStore(CODEC, OWNER, True, in_entries(KeptEntries(), CODEC, PageBudget(0), rows=32))
    timers, column = TimerService(Domain.EVENT_TIME, store), store.column("state")
    for reads in (False, True):
        tracemalloc.start()
        try:
            for key in range(count):
                store.touch(key)
                if reads:
                    column[key] += 1
                else:
                    column[key] = key + (1 << 40)
                    timers.register(key, key + (1 << 41))
            gc.collect()
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 0.6 < store.decoded_size / taken < 1.6
        store.snapshot()
        assert store.decoded_size == 0
