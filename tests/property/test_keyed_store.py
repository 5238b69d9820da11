"""Keyed state compared with a plain dict. Only the pages of touched keys are decoded and encoded."""

from __future__ import annotations

from collections import Counter
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import InvalidKeyError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.page_store import in_blob, in_entries
from tests.strategies import long_lists
from tests.support import CountingCodec, KeptEntries

Step: TypeAlias = tuple[str, Any, Any]


def new_store(codec: Codec | None = None, remember: bool = True, entries: KeptEntries | None = None) -> PagedKeyedStore:
    """``entries``: the store of its pages, if not in the snapshot."""
    codec = codec or Codec(TypeRegistry())
    stores = in_blob if entries is None else in_entries(entries, codec)
    return PagedKeyedStore(codec, "Keyed state", remember, stores)


def filled(
    keys: Any, codec: Codec | None = None, remember: bool = True, entries: KeptEntries | None = None
) -> PagedKeyedStore:
    store = new_store(codec, remember, entries)
    for key in keys:
        store.entry(key)["state"] = key
    return store


def reloaded(store: PagedKeyedStore, codec: Codec | None = None, entries: KeptEntries | None = None) -> PagedKeyedStore:
    other = new_store(codec, store.remembers, entries)
    other.restore(store.snapshot())
    return other


def pages_of(snapshot: tuple[Any, ...]) -> dict[int, bytes]:
    """The encoded pages of entries."""
    pages: dict[int, bytes] = snapshot[1][1]
    return pages


def contents(store: PagedKeyedStore) -> dict[Any, Any]:
    """Every key with its entry. A key that is only remembered has none."""
    return {key: store.find(key) or None for key in store}


# Few keys, so that they occur repeatedly. Some are equal to one of another type.
KEYS = st.integers(0, 9) | st.sampled_from(["a", "b", b"a", 1.0, 2.5, True, ("a", 1), ("a", 1.0), (), -1])
STEPS: st.SearchStrategy[list[Step]] = long_lists(
    st.tuples(
        st.sampled_from(["set", "set", "change", "clear", "look", "touch", "snapshot", "restore"]),
        KEYS,
        st.integers(0, 5),
    ),
    max_size=60,
)


LAYOUTS = st.none() | st.builds(KeptEntries)


@given(LAYOUTS, st.booleans(), st.sampled_from([0, 64, 256]), STEPS)
def test_behaves_like_a_dict(entries: KeptEntries | None, remember: bool, before: int, steps: list[Step]) -> None:
    """``before``: the number of existing keys other than those of the steps. One more key divides a page."""
    store = filled(range(100, 100 + before), remember=remember, entries=entries)
    model: dict[Any, Any] = {key: {"state": key} for key in range(100, 100 + before)}
    for what, key, value in steps:
        match what:
            case "set":
                store.entry(key)["list"] = [value]
                model[key] = {**(model.get(key) or {}), "list": [value]}
            case "change" if "list" in (model.get(key) or {}):
                store.entry(key)["list"].append(value)
                model[key] = {**model[key], "list": [*model[key]["list"], value]}
            case "clear":
                store.entry(key).clear()
                model[key] = None
            case "touch":
                store.touch(key)
                model.setdefault(key, None)
            case "snapshot":
                store.snapshot()
            case "restore":
                store = reloaded(store, entries=entries)
        if not remember:
            model = {key: entry for key, entry in model.items() if entry}
        assert (store.find(key) or None) == model.get(key)
    assert len(list(store)) == len(model)
    assert contents(store) == model
    assert store.snapshot()[0] == len(store) == len(model)
    assert contents(reloaded(store, entries=entries)) == model
    assert model or not (entries and entries.kept), "nothing is left of nothing"


COLUMNS = ("a", "b")
COLUMN_STEPS: st.SearchStrategy[list[Step]] = long_lists(
    st.tuples(
        st.sampled_from(["set", "set", "change", "remove", "entry", "look", "visit", "snapshot", "restore"]),
        KEYS,
        st.tuples(st.sampled_from(COLUMNS), st.none() | st.integers(0, 5)),
    ),
    max_size=60,
)


@given(LAYOUTS, st.booleans(), st.sampled_from([0, 64, 256]), COLUMN_STEPS)
def test_columns_behave_like_dicts(entries: KeptEntries | None, remember: bool, before: int, steps: list[Step]) -> None:
    """Alongside entries, in pages that are divided. None is a value like any other."""

    def with_columns(store: PagedKeyedStore) -> PagedKeyedStore:
        for name in COLUMNS:
            store.column(name)
        return store

    store = with_columns(new_store(remember=remember, entries=entries))
    model: dict[Any, dict[Any, Any]] = {key: {"a": [key]} for key in range(100, 100 + before)}
    for key in model:
        store.touch(key)
        store.column("a")[key] = [key]
    for what, key, (name, value) in steps:
        if what not in ("snapshot", "restore", "visit"):
            column = store.column(name)
            store.touch(key)
            values = model.setdefault(key, {})
        match what:
            case "set":
                column[key] = None if value is None else [value]
                values[name] = None if value is None else [value]
            case "change" if values.get(name):
                column[key].append(value)
                values[name] = [*values[name], value]
            case "remove":
                assert column.pop(key, "none") == values.pop(name, "none")
            case "entry":
                store.entry(key)["state"] = values["entry"] = value
            case "look":
                assert column.get(key, "none") == values.get(name, "none")
            case "visit":  # everything is live then, and nothing has changed
                assert set(store) == {key for key, values in model.items() if values or remember}
            case "snapshot":
                store.snapshot()
            case "restore":
                store = with_columns(reloaded(store, entries=entries))
    store = reloaded(store, entries=entries)
    found = {key: dict(store.columns_of(key)) for key in store}
    for key in found:
        if entry := store.find(key):
            found[key]["entry"] = entry["state"]
    assert found == {key: values for key, values in model.items() if values or remember}


def in_column(keys: Any, codec: Codec | None = None) -> PagedKeyedStore:
    store = new_store(codec)
    column = store.column("s")
    for key in keys:
        store.touch(key)
        column[key] = [key]
    return store


def test_only_the_page_of_a_touched_key_is_encoded() -> None:
    codec = CountingCodec()
    store = reloaded(in_column(range(1000)), codec)
    column = store.column("s")
    store.touch(17)
    assert codec.decoded == 1
    assert 1 < len(store.touched) < 100, "nor do the others of the page need a touch"
    for key in store.touched:
        column[key].append("changed")
    touched = set(store.touched)
    again = reloaded(store)
    assert codec.encoded == 1
    for key in range(1000):
        assert dict(again.columns_of(key)) == {"s": [key, "changed"] if key in touched else [key]}


def test_state_that_is_no_longer_declared_is_kept() -> None:
    store = new_store()
    column = store.column("other")
    store.restore(in_column(range(100)).snapshot())
    for key in range(100):
        store.touch(key)
        column[key] = key
    assert dict(reloaded(store).columns_of(7)) == {"s": [7], "other": 7}


DEADLINES: st.SearchStrategy[list[Step]] = long_lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "take back", "due", "snapshot", "restore"]), KEYS, st.integers(0, 40)
    ),
    max_size=60,
)


@given(LAYOUTS, st.sampled_from([0, 64, 256]), DEADLINES)
def test_deadlines_are_found_exactly_once(entries: KeptEntries | None, before: int, steps: list[Step]) -> None:
    store = filled(range(100, 100 + before), remember=False, entries=entries)
    model: dict[Any, set[int]] = {}
    for what, key, time in steps:
        times = model.setdefault(key, set())
        match what:
            case "add" if time not in times:
                times.add(time)
                store.entry(key)[Domain.EVENT_TIME] = sorted(times)
                store.add_deadline(Domain.EVENT_TIME, key, time)
            case "take back" if times:
                times.discard(min(times))
                set_deadlines(store, key, times)
            case "due":
                expected = [(t, k) for k, kept in model.items() for t in kept if t <= time]
                assert Counter(store.take_due(Domain.EVENT_TIME, time)) == Counter(expected)
                for other, kept in model.items():
                    if min(kept, default=time + 1) <= time:
                        kept.difference_update(range(time + 1))
                        set_deadlines(store, other, kept)
            case "snapshot":
                store.snapshot()
            case "restore":
                store = reloaded(store, entries=entries)
        earliest = min((t for kept in model.values() for t in kept), default=None)
        found = store.next_deadline(Domain.EVENT_TIME)
        assert earliest is None or (found is not None and found <= earliest)
    store.snapshot()
    assert store.next_deadline(Domain.EVENT_TIME) == min((t for kept in model.values() for t in kept), default=None)
    assert store.next_deadline(Domain.PROCESSING_TIME) is None


def set_deadlines(store: PagedKeyedStore, key: Any, times: set[int]) -> None:
    entry = store.entry(key)
    if times:
        entry[Domain.EVENT_TIME] = sorted(times)
    else:
        entry.pop(Domain.EVENT_TIME, None)


def test_deadline_decodes_only_its_own_page() -> None:
    before = filled(range(1000))
    set_deadlines(before, 17, {5, 9})
    before.add_deadline(Domain.EVENT_TIME, 17, 5)
    codec = CountingCodec()
    store = reloaded(before, codec)
    assert (store.take_due(Domain.EVENT_TIME, 4), codec.decoded) == ([], 0)
    assert (store.take_due(Domain.EVENT_TIME, 5), codec.decoded) == ([(5, 17)], 1)
    assert store.next_deadline(Domain.EVENT_TIME) == 9


def test_only_the_page_of_a_key_is_decoded() -> None:
    codec = CountingCodec()
    store = reloaded(filled(range(1000)), codec)
    assert codec.decoded == 0
    for _ in range(3):
        assert store.entry(17) == {"state": 17}
        store.touch(17)
        store.find("another key")
    assert codec.decoded <= 2
    assert sorted(store) == list(range(1000))
    assert codec.decoded == len(pages_of(store.snapshot()))


def test_only_changed_pages_are_encoded() -> None:
    codec = CountingCodec()
    store = reloaded(filled(range(1000)), codec)
    before = pages_of(store.snapshot())
    store.find(3)
    store.touch(4)
    store.entry(17)["state"] = "changed"
    after = pages_of(store.snapshot())
    assert codec.encoded == 1
    assert sum(after[number] is not old for number, old in before.items()) == 1
    assert pages_of(store.snapshot()) == after
    assert codec.encoded == 1


def test_snapshot_does_not_change_with_the_store() -> None:
    store = filled(range(100))
    first = store.snapshot()
    kept = first[0], (first[1][0], dict(pages_of(first)), first[1][2])
    filled_again = reloaded(store)
    store.entry(3)["state"] = "changed"
    store.snapshot()
    assert first[:2] == kept
    assert filled_again.find(3) == {"state": 3}


def test_restore_replaces_the_content() -> None:
    earlier = filled(["a"]).snapshot()
    store = filled(["a", "b"])
    store.entry("a")["state"] = "changed"
    store.touch("a")
    store.restore(earlier)
    assert store.touched == set()
    assert store.find("b") is None
    assert contents(store) == {"a": {"state": "a"}}
    assert store.snapshot() == earlier


def test_keys_may_change_during_iteration() -> None:
    store = filled(range(100), remember=False)
    visited = []
    for key in store:
        visited.append(key)
        store.entry(key + 1000)["state"] = "new"
        store.entry(key).clear()
    assert sorted(visited) == list(range(100))
    assert sorted(store) == list(range(1000, 1100))


@pytest.mark.parametrize("count", [1000, 20_000])
def test_pages_stay_small_with_the_keys_of_one_subtask(count: int) -> None:
    keys = [key for key in range(8 * count) if subtask_of(key, 128, 8) == 3]
    codec = Codec(TypeRegistry())
    pages = pages_of(filled(keys, codec).snapshot())
    sizes = [len(codec.loads_columns(page, "page")[0]) for page in pages.values()]  # its keys come first
    assert sum(sizes) == len(keys)
    assert max(sizes) <= 3 * 64
    assert len(pages) <= len(keys) / 8


@pytest.mark.parametrize("key", [None, float("nan"), object(), (1, None, frozenset())])
def test_invalid_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidKeyError):
        new_store().touch(key)
