"""Keyed state in columns compared with plain dicts, one row after the other."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.arrow import ArrowKeyedLists, ArrowKeyedState
from dsv2.arrow.keyed import table as keyed_table
from dsv2.arrow.keyed.columns import ArrowKeyedColumns
from dsv2.arrow.keyed.keys import distinct_keys, key_columns
from dsv2.arrow.keyed.page_format import pieces_of
from dsv2.arrow.keyed.snapshots import stored_columns
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.page_store import in_blob, in_entries
from dsv2.runtime.state.timers import BatchTime
from dsv2.state import ListStateDeclaration, StateTtl, TtlUpdate, ValueStateDeclaration
from dsv2.watermark.event_time import EventTimeOfInputs
from tests.strategies import long_lists
from tests.support import KeptEntries


class Topic(NamedTuple):
    """A value."""

    total: int
    last: str | None
    tags: list[str]


TOPICS = ValueStateDeclaration("topics", Topic)
LIVED = ValueStateDeclaration("topics", Topic, ttl=StateTtl(timedelta(milliseconds=3)))


def columns_of(
    declaration: ValueStateDeclaration[Topic, Any] | ListStateDeclaration[Topic],
    entries: KeptEntries | None = None,
    time: BatchTime | None = None,
    names: tuple[str, ...] | None = None,
) -> ArrowKeyedColumns:
    """``entries``: The store of the pages, if they are not in the snapshot."""
    codec = Codec(TypeRegistry())
    stores = in_blob if entries is None else in_entries(entries, codec)
    environment = ColumnsEnvironment(
        True, names, 0, 1, 128, codec, stores, "State", time or BatchTime(0), EventTimeOfInputs(1)
    )
    return ArrowKeyedColumns([declaration], environment, fail)


def fail(state: object, key: object, error: BaseException) -> NoReturn:
    raise error


def all_values(state: ArrowKeyedState[Topic], keys: int = 1) -> dict[Any, Topic]:
    found: dict[Any, Topic] = {}
    for table in state.tables():
        rows: Iterator[tuple[Any, ...]] = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for row in rows:
            key = row[0] if keys == 1 else row[:keys]
            assert key not in found
            found[key] = Topic(*row[keys:])
    return found


KEYS = {
    "numbers": st.integers(0, 9) | st.sampled_from([-1, 1 << 62, -(1 << 63)]),
    "texts": st.sampled_from(["", "a", "b", "é", "topic-1", "topic-2"]),
    "bytes": st.sampled_from([b"", b"a"]),
    "pairs": st.tuples(st.integers(0, 2), st.sampled_from(["a", "b"])),
}
VALUES = st.builds(
    Topic, st.integers(-9, 9), st.none() | st.sampled_from("xyz"), st.lists(st.sampled_from("uv"), max_size=2)
)


def as_keys(kind: str, keys: list[Any]) -> Any:
    match kind:
        case "numbers":
            return pa.array(keys, pa.int64())
        case "texts":
            return pa.array(keys, pa.string())
        case "bytes":
            return pa.array(keys, pa.binary())
    return [pa.array([key[0] for key in keys], pa.int64()), pa.array([key[1] for key in keys], pa.string())]


def steps(kind: str) -> Any:
    rows = st.lists(st.tuples(KEYS[kind], VALUES), max_size=6)
    what = st.sampled_from(["update", "update", "count", "accumulate", "get", "remove", "snapshot", "restore", "wait"])
    return st.tuples(st.just(kind), long_lists(st.tuples(what, rows), max_size=40))


def schema() -> Any:
    return {"total": pa.int64(), "last": pa.string(), "tags": pa.list_(pa.string())}


def columns_for(values: list[Topic]) -> dict[str, Any]:
    return {name: pa.array([getattr(value, name) for value in values], kind) for name, kind in schema().items()}


@given(
    st.none() | st.builds(KeptEntries),
    st.booleans(),
    st.sampled_from([0, 255, 256, 700]),
    st.sampled_from(list(KEYS)).flatmap(steps),
)
def test_behaves_like_a_dict(
    entries: KeptEntries | None, lives: bool, before: int, kind_and_steps: tuple[str, list[Any]]
) -> None:
    """``before``: the number of existing keys. One more key divides a page."""
    kind, of_steps = kind_and_steps
    declaration, time = LIVED if lives else TOPICS, BatchTime(0)
    columns = columns_of(declaration, entries, time)
    state = columns.keyed_state(declaration)
    model: dict[Any, tuple[Topic, int]] = {}
    if before and kind in ("numbers", "texts"):
        old = [1000 + n if kind == "numbers" else f"old {n}" for n in range(before)]
        state.update(as_keys(kind, old), {"total": 1, "last": None, "tags": pa.array([["t"]] * before)})
        model = {key: (Topic(1, None, ["t"]), 3) for key in old}
    for what, rows in of_steps:
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        given_keys = as_keys(kind, keys)
        match what:
            case "update":
                state.update(given_keys, columns_for(values))
                model.update({key: (value, time.now_ms + 3) for key, value in rows})
            case "count" | "accumulate":
                known = [(key, value) for key, value in rows if key in model]
                keys, values = [key for key, _ in known], [value for _, value in known]
                how = {"total": "sum", "last": "max"}
                added = {name: column for name, column in columns_for(values).items() if name in how}
                expected = []
                for key, value in known:
                    old_value = model[key][0]
                    texts = [text for text in (old_value.last, value.last) if text is not None]
                    new = old_value._replace(total=old_value.total + value.total, last=max(texts, default=None))
                    model[key] = new, time.now_ms + 3
                    expected.append({"total": new.total, "last": new.last})
                if what == "count":
                    state.aggregate(as_keys(kind, keys), added, how)
                else:
                    assert state.accumulate(as_keys(kind, keys), added, how).to_pylist() == expected
            case "get":
                found = [Topic(**row) for row in state.get(given_keys).to_pylist()]
                assert found == [model[key][0] if key in model else Topic(None, None, None) for key in keys]  # type: ignore[arg-type]
                assert state.contains(given_keys).to_pylist() == [key in model for key in keys]
            case "remove":
                state.remove(given_keys)
                for key in keys:
                    model.pop(key, None)
            case "snapshot":
                columns.snapshot()
            case "restore":
                snapshot = columns.snapshot()
                columns = columns_of(declaration, entries, time)
                columns.restore(snapshot)
                state = columns.keyed_state(declaration)
            case "wait":
                columns.snapshot()
                time.now_ms += 1
                columns.expire()
                if lives:
                    model = {key: (value, expiry) for key, (value, expiry) in model.items() if expiry > time.now_ms}
        assert columns.count == len(model)
    assert all_values(state, 2 if kind == "pairs" else 1) == {key: value for key, (value, _) in model.items()}
    state.remove(as_keys(kind, list(model)))
    assert columns.snapshot() == {}
    assert entries is None or not entries.kept


LISTS = ListStateDeclaration("lists", Topic)
LIVED_LISTS = ListStateDeclaration("lists", Topic, ttl=StateTtl(timedelta(milliseconds=3)))
READ_LISTS = ListStateDeclaration(
    "lists", Topic, ttl=StateTtl(timedelta(milliseconds=3), update=TtlUpdate.ON_READ_AND_WRITE)
)


def list_steps(kind: str) -> Any:
    rows = st.lists(st.tuples(KEYS[kind], VALUES), max_size=6)
    what = st.sampled_from(["append", "append", "put", "get", "remove", "snapshot", "restore", "wait"])
    return st.tuples(st.just(kind), long_lists(st.tuples(what, rows), max_size=40))


def all_lists(state: ArrowKeyedLists[Topic], keys: int) -> dict[Any, list[Topic]]:
    found: dict[Any, list[Topic]] = {}
    for table in state.tables():
        rows: Iterator[tuple[Any, ...]] = zip(*(column.to_pylist() for column in table.columns), strict=True)
        for row in rows:
            found.setdefault(row[0] if keys == 1 else row[:keys], []).append(Topic(*row[keys:]))
    return found


@given(
    st.none() | st.builds(KeptEntries),
    st.sampled_from([LISTS, LIVED_LISTS, READ_LISTS]),
    st.sampled_from(list(KEYS)).flatmap(list_steps),
)
def test_lists_behave_like_lists(
    entries: KeptEntries | None, declaration: ListStateDeclaration[Topic], kind_and_steps: tuple[str, list[Any]]
) -> None:
    kind, of_steps = kind_and_steps
    time, ttl = BatchTime(0), declaration.ttl
    columns = columns_of(declaration, entries, time)
    state = columns.keyed_state(declaration)
    model: dict[Any, list[tuple[Topic, int]]] = {}
    for what, rows in of_steps:
        keys, values = [key for key, _ in rows], [value for _, value in rows]
        given_keys, expiry = as_keys(kind, keys), time.now_ms + 3
        table = pa.table(columns_for(values), pa.schema(schema()))
        match what:
            case "append":
                state.append(given_keys, table)
                for key, value in rows:
                    model.setdefault(key, []).append((value, expiry))
            case "put":  # keeps one stored row of each key, after the new ones
                found = state.get(given_keys)
                first = np.concatenate([np.ones(min(len(found.of), 1), np.bool_), found.of[1:] != found.of[:-1]])
                joined = pa.concat_tables([table, found.rows.filter(pa.array(first))])
                state.put(given_keys, joined, np.concatenate([found.of_keys, found.of[first]]))
                before = {key: model.pop(key, [])[:1] for key in dict.fromkeys(keys)}
                for key, value in [*rows, *((key, value) for key, cells in before.items() for value, _ in cells)]:
                    model.setdefault(key, []).append((value, expiry))
            case "get":
                found = state.get(given_keys)
                by_number = dict(zip(found.of_keys.tolist(), keys, strict=True))
                lists: dict[Any, list[Topic]] = {key: [] for key in keys}
                for number, row in zip(found.of.tolist(), found.rows.to_pylist(), strict=True):
                    lists[by_number[number]].append(Topic(**row))
                assert lists == {key: [value for value, _ in model.get(key, [])] for key in keys}
                assert found.count == len(lists)
                if ttl is not None and ttl.update is TtlUpdate.ON_READ_AND_WRITE:
                    model.update({key: [(value, expiry) for value, _ in model[key]] for key in keys if key in model})
            case "remove":
                state.remove(given_keys)
                for key in keys:
                    model.pop(key, None)
            case "snapshot":
                columns.snapshot()
            case "restore":
                snapshot = columns.snapshot()
                columns = columns_of(declaration, entries, time)
                columns.restore(snapshot)
                state = columns.keyed_state(declaration)
            case "wait":
                columns.snapshot()
                time.now_ms += 1
                columns.expire()
                if ttl is not None:
                    lives = {key: [cell for cell in cells if cell[1] > time.now_ms] for key, cells in model.items()}
                    model = {key: cells for key, cells in lives.items() if cells}
        assert columns.count == len(model)
    number_of_parts = 2 if kind == "pairs" else 1
    assert all_lists(state, number_of_parts) == {key: [value for value, _ in cells] for key, cells in model.items()}
    state.remove(as_keys(kind, list(model)))
    assert columns.snapshot() == {}
    assert entries is None or not entries.kept


@pytest.mark.parametrize("kind", ["numbers", "texts"])
@pytest.mark.parametrize("entries", [None, KeptEntries()])
def test_lists_in_large_pages_behave_like_lists(
    kind: str, entries: KeptEntries | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list is read, replaced or removed after micro-batches that have only appended to it, while pages divide."""
    monkeypatch.setattr(keyed_table, "_LARGE", 0)
    monkeypatch.setattr(keyed_table, "_MOST_PIECES", 3)
    random, model, number, pieces = np.random.default_rng(0), dict[Any, list[Topic]](), 0, set[int]()
    columns = columns_of(LISTS, entries)
    state: ArrowKeyedLists[Topic] = columns.keyed_state(LISTS)
    for step in range(150):
        drawn = random.integers(0, 300 + 10 * step, 40).tolist()
        keys = drawn if kind == "numbers" else list(map(str, drawn))
        values = [Topic(number + one, None if one % 3 else "x", ["u"] * (one % 2)) for one in range(len(keys))]
        number += len(keys)
        rows = pa.table(columns_for(values), pa.schema(schema()))
        match int(random.integers(0, 12)):
            case 0:
                state.remove(as_keys(kind, keys))
                model = {key: values for key, values in model.items() if key not in keys}
            case 1:
                distinct = list(dict.fromkeys(keys))
                state.put(as_keys(kind, distinct), rows.slice(0, len(distinct)), np.arange(len(distinct)))
                model.update({key: [value] for key, value in zip(distinct, values, strict=False)})
            case 2 | 3:
                found = state.get(as_keys(kind, keys))
                by_number = dict(zip(found.of_keys.tolist(), keys, strict=True))
                lists: dict[Any, list[Topic]] = {}
                for of, row in zip(found.of.tolist(), found.rows.to_pylist(), strict=True):
                    lists.setdefault(by_number[of], []).append(Topic(**row))
                assert lists == {key: model[key] for key in keys if key in model}
            case _:
                state.append(as_keys(kind, keys), rows)
                for key, value in zip(keys, values, strict=True):
                    model.setdefault(key, []).append(value)
        if random.random() < 0.5:
            snapshot = columns.snapshot()
            columns = columns_of(LISTS, entries)
            columns.restore(snapshot)
            state = columns.keyed_state(LISTS)
            for stored in stored_columns(snapshot).values():
                pages = list(stored.table.pages.values())
                pieces.update(len(pieces_of(page)) for page in pages)
                if pages and step % 10 == 0:
                    found_keys, contents, _ = stored.contents(pages)
                    assert dict(zip(found_keys.values.to_pylist(), contents, strict=True)) == model
        assert columns.count == len(model)
    assert all_lists(state, 1) == model
    assert len(model) > 1_000
    assert pieces == ({1, 2, 3} if entries is None else set())


@pytest.mark.parametrize("kind", KEYS)
def test_hashes_are_those_of_single_keys(kind: str) -> None:
    @given(st.lists(KEYS[kind], min_size=1))
    def check(keys: list[Any]) -> None:
        found, places = distinct_keys(key_columns(as_keys(kind, keys)), Codec(TypeRegistry()))
        assert found.hashes[places].tolist() == list(map(stable_hash, keys))

    check()


TIMERS = long_lists(
    st.tuples(
        st.sampled_from(["register", "register", "delete", "fire", "restore"]),
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), max_size=4),
        st.integers(0, 20),
    ),
    max_size=40,
)


@given(st.none() | st.builds(KeptEntries), TIMERS)
def test_timers_behave_like_a_set(entries: KeptEntries | None, of_steps: list[Any]) -> None:
    columns = columns_of(TOPICS, entries, names=("user",))
    model: set[tuple[int, int]] = set()
    for what, pairs, time in of_steps:
        keys, times = as_keys("numbers", [key for key, _ in pairs]), pa.array([time for _, time in pairs], pa.int64())
        match what:
            case "register":
                columns.event_timers.register(keys, times)
                model.update(pairs)
            case "delete":
                columns.event_timers.delete(keys, times)
                model.difference_update(pairs)
            case "fire":
                found: list[pa.Table] = []
                columns.fire(True, time, found.append)
                fired = [(row["user"], row["timestamp"]) for table in found for row in table.to_pylist()]
                assert [at for _, at in fired] == sorted(at for _, at in fired)
                assert sorted(fired) == sorted(pair for pair in model if pair[1] <= time)
                model = {pair for pair in model if pair[1] > time}
            case "restore":
                snapshot = columns.snapshot()
                columns = columns_of(TOPICS, entries, names=("user",))
                columns.restore(snapshot)
        first = columns.next_time(True)
        assert not model or (first is not None and first <= min(time for _, time in model))
