"""Keyed state against a plain dict, and what it spares: only the pages of touched keys are decoded and encoded."""

from __future__ import annotations

from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import InvalidKeyError
from dsv2.runtime.codec import Codec, Names
from dsv2.runtime.keyed_store import PagedKeyedStore
from dsv2.runtime.keys import subtask_of
from dsv2.runtime.types import TypeRegistry
from tests.support import unhurried

Step: TypeAlias = tuple[str, Any, Any]


class CountingCodec(Codec):
    """Counts the pages that pass through."""

    def __init__(self) -> None:
        super().__init__(TypeRegistry())
        self.decoded = self.encoded = 0

    def loads(self, data: bytes, owner: str, names: Names | None = None) -> Any:
        self.decoded += 1
        return super().loads(data, owner, names)

    def dumps(self, value: Any) -> bytes:
        self.encoded += 1
        return super().dumps(value)


def new_store(codec: Codec | None = None) -> PagedKeyedStore:
    return PagedKeyedStore(codec or Codec(TypeRegistry()), "Keyed state")


def filled(keys: Any, codec: Codec | None = None) -> PagedKeyedStore:
    store = new_store(codec)
    for key in keys:
        store.put(key, [key])
    return store


def reloaded(store: PagedKeyedStore, codec: Codec | None = None) -> PagedKeyedStore:
    other = new_store(codec)
    other.restore(store.snapshot())
    return other


# Few keys, so that they meet again; some are equal to one of another type.
KEYS = st.integers(0, 9) | st.sampled_from(["a", "b", b"a", 1.0, 2.5, True, ("a", 1), ("a", 1.0), (), -1])
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "get", "touch", "remove", "change", "snapshot", "restore"]),
        KEYS,
        st.integers(0, 5),
    ),
    max_size=60,
)


@unhurried
@given(st.sampled_from([0, 64, 256]), STEPS)
def test_it_is_a_dict_whatever_is_done_to_it(before: int, steps: list[Step]) -> None:
    """``before``: keys that are there already, besides those of the steps; one more, and the pages are divided."""
    store = filled(range(100, 100 + before))
    model: dict[Any, Any] = {key: [key] for key in range(100, 100 + before)}
    for what, key, value in steps:
        match what:
            case "put":
                store.put(key, [value])
                model[key] = [value]
            case "touch":
                store.touch(key)
                model.setdefault(key, None)
            case "remove":
                store.remove(key)
                model.pop(key, None)
            case "change" if model.get(key) is not None:
                entry = store.get(key)
                entry.append(value)
                store.put(key, entry)
                model[key] = [*model[key], value]
            case "snapshot":
                assert store.snapshot()[0] == len(model)
            case "restore":
                store = reloaded(store)
        assert store.get(key) == model.get(key)
        assert len(store) == len(model)
    found = list(store)
    assert len(found) == len(model)
    assert {key: store.get(key) for key in found} == model


def test_only_the_page_of_a_key_is_decoded() -> None:
    codec = CountingCodec()
    store = reloaded(filled(range(1000)), codec)
    assert codec.decoded == 0
    for _ in range(3):
        assert store.get(17) == [17]
        store.touch(17)
        store.remove("another key")
    assert codec.decoded <= 2
    assert sorted(store) == list(range(1000))
    assert codec.decoded == len(store.snapshot()[1])


def test_only_pages_that_changed_are_encoded_and_the_others_stay_the_same_objects() -> None:
    codec = CountingCodec()
    store = reloaded(filled(range(1000)), codec)
    _, before = store.snapshot()
    store.get(3)
    store.touch(4)
    store.put(17, "changed")
    _, after = store.snapshot()
    assert codec.encoded == 1
    assert sum(new is not old for new, old in zip(after, before, strict=True)) == 1
    assert store.snapshot()[1] == after
    assert codec.encoded == 1


def test_a_snapshot_does_not_change_with_the_store() -> None:
    store = filled(range(100))
    count, pages = store.snapshot()
    kept = list(pages)
    filled_again = reloaded(store)
    store.put(3, "changed")
    store.snapshot()
    assert (count, pages) == (100, kept)
    assert filled_again.get(3) == [3]


def test_merely_seen_keys_are_kept() -> None:
    """``apply_to_all_partitions`` visits them after a restart as well; Flink's does not."""
    store = new_store()
    store.touch("a")
    store.put("b", 1)
    again = reloaded(store)
    assert set(again) == {"a", "b"}
    assert again.touched == set()
    again.touch("b")
    assert again.touched == {"b"}
    assert again.get("b") == 1


def test_a_removed_key_is_not_taken_for_seen() -> None:
    """Loops do not touch what is in ``touched``."""
    store = new_store()
    store.touch("a")
    store.remove("a")
    assert store.touched == set()
    store.touch("a")
    assert list(store) == ["a"]


def test_a_removed_key_is_not_there_after_a_restart() -> None:
    store = reloaded(filled(["a", "b"]))
    store.remove("a")
    assert list(reloaded(store)) == ["b"]


def test_a_key_that_divides_the_pages_takes_nothing_away() -> None:
    store = reloaded(filled(range(64)))
    store.put("one more", 1)
    assert len(set(reloaded(store))) == 65


def test_a_restore_forgets_what_was_there() -> None:
    earlier = filled(["a"]).snapshot()
    store = filled(["a", "b"])
    store.put("a", "changed")
    store.touch("a")
    store.restore(earlier)
    assert store.touched == set()
    assert {key: store.get(key) for key in store} == {"a": ["a"]}
    assert store.snapshot() == earlier


def test_keys_may_come_and_go_while_all_are_visited() -> None:
    store = filled(range(100))
    visited = []
    for key in store:
        visited.append(key)
        store.put(key + 1000, "new")
        store.remove(key)
    assert sorted(visited) == list(range(100))
    assert sorted(store) == list(range(1000, 1100))


@pytest.mark.parametrize("count", [1000, 20_000])
def test_pages_stay_small_although_the_keys_are_those_of_one_subtask(count: int) -> None:
    keys = [key for key in range(8 * count) if subtask_of(key, 128, 8) == 3]
    codec = Codec(TypeRegistry())
    _, pages = filled(keys, codec).snapshot()
    sizes = [len(codec.loads(page, "page")) for page in pages if page]
    assert sum(sizes) == len(keys)
    assert max(sizes) <= 3 * 64
    assert len(pages) <= len(keys) / 8


@pytest.mark.parametrize("key", [None, float("nan"), object(), (1, None, frozenset())])
def test_what_cannot_be_a_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidKeyError):
        new_store().touch(key)
