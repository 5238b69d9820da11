"""Pages as entries of a map, and panes in pages: what is read and written, how pages are divided, and damaged ones."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import FORMAT_VERSION, BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.deadlines import PAGES_PER_BLOCK, Deadlines
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.page_store import BlobPages, EntryPages, PageStore, in_blob, in_entries
from dsv2.runtime.state.pages import KEYS_PER_PAGE, PagedMap, Pages
from dsv2.runtime.state.panes import PagedPane, PagedPanes
from dsv2.runtime.state.timers import TimerService
from dsv2.sinks import CollectSink
from tests.strategies import long_lists
from tests.support import CountingCodec, Driver, KeptEntries, local_environment, one_input

CODEC = Codec(TypeRegistry())
OWNER = "Keyed state of Process (uid 'count'), subtask 3"
Layout: TypeAlias = KeptEntries | None

LAYOUTS = st.none() | st.builds(KeptEntries)


def page_store(entries: Layout) -> PageStore:
    return BlobPages() if entries is None else EntryPages(entries, "pages", CODEC, OWNER)


def keyed_store(entries: KeptEntries) -> PagedKeyedStore:
    return PagedKeyedStore(CODEC, OWNER, True, in_entries(entries, CODEC))


def next_store(store: PagedKeyedStore, entries: KeptEntries) -> PagedKeyedStore:
    """The store of the next micro-batch."""
    snapshot = store.snapshot()
    entries.forget_calls()
    other = keyed_store(entries)
    other.restore(snapshot)
    return other


def counted(keys: int, entries: KeptEntries) -> PagedKeyedStore:
    store = keyed_store(entries)
    for key in range(keys):
        store.entry(key)["count"] = 1
    return next_store(store, entries)


# --- How pages are divided ------------------------------------------------------------------------------------------


@given(
    LAYOUTS,
    st.lists(st.integers(0, 400) | st.text(max_size=3), max_size=400, unique=True),
    st.integers(1, 40),
    st.integers(0, 200),
)
def test_each_key_is_in_its_page(entries: Layout, keys: list[Any], count: int, more: int) -> None:
    """The number of pages grows one by one, then by ``more``."""
    at_once = count + more
    pages = Pages(CODEC, OWNER, page_store(entries))
    for key in keys:
        pages.load(pages.number_of(key))[key] = key
    pages.changed.add(0)
    for number in range(1, count):
        pages.changed.clear()
        assert pages.grow(KEYS_PER_PAGE * number + 1, 0) == range(number, number + 1)
        assert len(pages.changed) == 2, "one page becomes two, and no other is touched"
        if number == count // 2:  # stored in between
            pages.changed |= set(range(pages.count))
            snapshot = pages.snapshot()
            pages = Pages(CODEC, OWNER, page_store(entries))
            pages.restore(snapshot)
    assert pages.grow(KEYS_PER_PAGE * at_once, 0) == range(count, at_once)
    assert pages.grow(KEYS_PER_PAGE, 0) == range(0), "they do not become less"
    found = {number: list(page) for number, page in enumerate(pages)}
    assert sorted((key for page in found.values() for key in page), key=repr) == sorted(keys, key=repr)
    assert all(pages.number_of(key) == number for number, page in found.items() for key in page)


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1023, 1024, 1025, 70_000])
def test_pages_have_similar_sizes(count: int) -> None:
    """Between two powers of two, pages that are not divided yet have twice as many keys."""
    pages = Pages(CODEC, OWNER, BlobPages())
    pages.restore((count, {}, KEYS_PER_PAGE))
    whole = 1 << count.bit_length() - 1
    divided = count - whole
    sizes = [0] * count
    for key in range(20_000):
        sizes[pages.number_of(key)] += 1
    of_divided = sum(sizes[:divided]) + sum(sizes[whole:])
    assert abs(of_divided / 20_000 - divided / whole) < 0.02


def test_additional_keys_write_only_a_few_pages() -> None:
    entries = KeptEntries()
    store = counted(6400, entries)
    for key in range(6400, 6700):
        store.entry(key)["count"] = 1
        snapshot = store.snapshot()
        assert len(entries.read) <= 2
        assert len(entries.written) <= 3, "its own, and two where there was one"
        entries.forget_calls()
        store = keyed_store(entries)
        store.restore(snapshot)
    assert len(entries.kept) == 210
    assert sorted(store) == list(range(6700))


# --- How large pages are --------------------------------------------------------------------------------------------


def put(store: PagedKeyedStore, keys: Iterable[int], size: int) -> None:
    values = store.column("value")
    for key in keys:
        store.touch(key)
        values[key] = key.to_bytes(4, "little") * (size // 4)


def moved(entries: KeptEntries, numbers: list[tuple[str, int]]) -> int:
    return sum(len(entries.kept[number]) for number in numbers)


def sizes(store: PagedKeyedStore, entries: KeptEntries) -> list[int]:
    """The numbers of keys of the pages."""
    codec = store._pages._codec
    return [len(codec.loads_columns(codec.unwrap(BlobKind.PAGE, page, "")[:], "")[0]) for page in entries.kept.values()]


@pytest.mark.parametrize("size", [100, 300, 5_000])
@pytest.mark.parametrize("micro_batches", [1, 4])
def test_key_moves_a_few_times_its_bytes(size: int, micro_batches: int) -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    keys, touched = range(20_000), range(0, 20_000, 50)
    for begin in range(micro_batches):
        put(store, keys[begin::micro_batches], size)
        store = next_store(store, entries)
    put(store, touched, size + 4)
    store.snapshot()
    assert moved(entries, entries.read) < 8 * size * len(touched)
    assert moved(entries, entries.written) < 8 * size * len(touched)
    assert len(entries.read) == len(entries.written) <= len(touched), "and nothing is split"


def test_small_values_share_pages() -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    put(store, range(6400), 4)
    store.snapshot()
    assert len(entries.kept) == 200


def test_first_values_may_be_unlike_the_others() -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    put(store, [0], 100_000)
    store = next_store(store, entries)
    put(store, range(1, 6400), 4)
    store = next_store(store, entries)
    assert len(entries.kept) == 200
    put(store, range(6400, 20_000), 400)
    store = next_store(store, entries)
    assert 6_000 < len(entries.kept) <= 10_000


def test_pages_are_split_gradually_when_values_grow() -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    keys = range(6400)
    put(store, keys, 4)
    store = next_store(store, entries)
    counts = [len(entries.kept)]
    for step in range(2 * len(keys) // 100):
        put(store, [(100 * step + number) % len(keys) for number in range(100)], 400)
        store = next_store(store, entries)
        counts.append(len(entries.kept))
        assert len(entries.kept) - counts[-2] <= 1600, "at most what the keys in the touched pages need"
    assert counts == sorted(counts)
    assert counts[-1] == len(keys) // 2
    assert sorted(store) == list(keys)
    assert max(sizes(store, entries)) < 16


def test_huge_value_does_not_split_other_pages() -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    put(store, range(64_000), 8)
    store = next_store(store, entries)
    before = len(entries.kept)
    for _ in range(3):
        put(store, [17], 10_000_000)
        put(store, range(0, 64_000, 1600), 8)
        store = next_store(store, entries)
    assert len(entries.kept) == before


# --- Pages that a micro-batch touches -------------------------------------------------------------------------------


def test_only_touched_pages_are_read_and_changed_ones_written() -> None:
    entries = KeptEntries()
    store = counted(6400, entries)
    assert (entries.read, entries.written) == ([], [])
    store.entry(17)["count"] = 2
    store.entry(17)["count"] = 3
    store.entry(18)  # read, as handles do, which cannot tell whether it changed
    assert len(entries.read) == 2
    store.snapshot()
    assert entries.written == entries.read[:1]
    assert len(entries.kept) == 200


def test_future_deadlines_of_untouched_pages_are_not_read() -> None:
    entries = KeptEntries()
    store = keyed_store(entries)
    for key in range(8 * PAGES_PER_BLOCK * KEYS_PER_PAGE):  # eight blocks of deadlines
        store.entry(key)[Domain.EVENT_TIME] = [10_000 + key]
        store.add_deadline(Domain.EVENT_TIME, key, 10_000 + key)
    store = next_store(store, entries)
    assert store.next_deadline(Domain.EVENT_TIME) == 10_000
    assert store.take_due(Domain.EVENT_TIME, 9_999) == []
    assert entries.read == []
    assert store.take_due(Domain.EVENT_TIME, 10_000) == [(10_000, 0)]
    assert [name for name, _ in entries.read] == ["deadlines/0/0", "keys"]


def test_pages_of_an_operator_are_under_its_uid() -> None:
    """Other operators of its chain have the same map."""
    entries = KeptEntries()
    env = local_environment()
    env.from_collection([1], "in").key_by(abs).process(one_input()).with_uid("f").to_sink(CollectSink())
    driver = Driver(env.build_plan(), "f", entries=entries).open()
    driver.send(1)
    driver.restart()
    assert {name for name, _ in entries.kept} == {"f/keys"}


def test_removed_panes_leave_no_entries() -> None:
    entries = KeptEntries()
    panes = PagedPanes(CODEC, OWNER, in_entries(entries, CODEC))
    panes.open(5, 9, by_event=True).live.update({key: key for key in range(1000)})
    panes.open(6, 9, by_event=True).live.update({key: -key for key in range(10)})
    snapshot = panes.snapshot()
    assert len(entries.kept) == 32 + 1
    panes = PagedPanes(CODEC, OWNER, in_entries(entries, CODEC))
    panes.restore(snapshot)
    pane = panes.get(6)
    assert pane is not None
    assert pane.take(3) == -3
    panes.drop(5)
    assert {name for name, _ in entries.kept} == {"pane/6"}
    panes.drop(6)
    assert (panes.snapshot(), entries.kept) == ({}, {})


def test_map_without_keys_leaves_no_entries() -> None:
    entries = KeptEntries()
    values = PagedMap(CODEC, OWNER, page_store(entries))
    values.live.update({key: key for key in range(1000)})
    values.snapshot()
    for key in range(1000):
        values.take(key)
    values.live.clear()
    assert (values.snapshot(), entries.kept) == ((0, (0, {}, KEYS_PER_PAGE)), {})


# --- Deadlines of very many pages -----------------------------------------------------------------------------------

DEADLINES = long_lists(
    st.tuples(
        st.sampled_from(["hasten", "hasten", "put", "put none", "take", "save"]),
        st.integers(0, 3) | st.integers(250, 260) | st.integers(0, 3000),
        st.integers(0, 50),
    ),
    max_size=60,
)


@given(LAYOUTS, DEADLINES)
def test_deadlines_are_a_dict_with_a_minimum(entries: Layout, steps: list[tuple[str, int, int]]) -> None:
    stores = in_blob if entries is None else in_entries(entries, CODEC)
    deadlines = Deadlines(CODEC, OWNER, stores, "deadlines")
    model: dict[int, int] = {}
    for what, page, time in steps:
        match what:
            case "hasten":
                deadlines.hasten(page, time)
                model[page] = min(time, model.get(page, time))
            case "put":
                deadlines.put(page, time)
                model[page] = time
            case "put none":
                deadlines.put(page, None)
                model.pop(page, None)
            case "take":
                due = sorted((t, p) for p, t in model.items() if t <= time)
                assert deadlines.take(time) == [p for _, p in due]
                for _, p in due:
                    del model[p]
            case "save":
                snapshot = deadlines.snapshot()
                if entries is not None:
                    entries.forget_calls()
                deadlines = Deadlines(CODEC, OWNER, stores, "deadlines")
                deadlines.restore(snapshot)
        assert deadlines.next() == min(model.values(), default=None)
    assert (deadlines.snapshot() is None) == (not model)
    assert model or not entries or not entries.kept


def test_cost_of_a_deadline_hardly_depends_on_the_number_of_pages() -> None:
    """Neither the state of the subtask nor what a micro-batch reads and writes grows in proportion."""
    entries = KeptEntries()
    deadlines = Deadlines(CODEC, OWNER, in_entries(entries, CODEC), "deadlines")
    pages = 40 * PAGES_PER_BLOCK**2
    for page in range(pages):
        deadlines.put(page, 1_000_000 + page)
    for page in (7, pages - 1):
        snapshot = deadlines.snapshot()
        entries.forget_calls()
        deadlines = Deadlines(CODEC, OWNER, in_entries(entries, CODEC), "deadlines")
        deadlines.restore(snapshot)
        deadlines.put(page, page)
        assert deadlines.next() == 7
        block = page // PAGES_PER_BLOCK
        assert entries.read == [
            ("deadlines/2", block // PAGES_PER_BLOCK**2),
            ("deadlines/1", block // PAGES_PER_BLOCK),
            ("deadlines/0", block),
        ]
    assert snapshot is not None
    assert len(snapshot[0]) <= PAGES_PER_BLOCK
    assert deadlines.take(1_000_000) == [7, pages - 1, 0]
    for page in range(pages):
        deadlines.put(page, None)
    assert deadlines.snapshot() is None
    assert entries.kept == {}


def test_moved_deadlines_take_no_memory() -> None:
    """As with a time to live that begins again with each value."""
    deadlines = Deadlines(CODEC, OWNER, in_blob, "deadlines")
    tracemalloc.start()
    before = 0
    for time in range(20_000):
        deadlines.put(0, 1)
        deadlines.put(1 + time % (4 * PAGES_PER_BLOCK), 1_000_000 + time)
        if time == 1000:
            before, _ = tracemalloc.get_traced_memory()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 100_000


def cost_of_a_timer(keys: int) -> int:
    """The bytes that are stored when one of ``keys`` keys with timers gets another timer."""
    entries = KeptEntries()
    store = keyed_store(entries)
    for key in range(keys):
        TimerService(Domain.EVENT_TIME, store).register(key, 10_000 + key)
    store = next_store(store, entries)
    TimerService(Domain.EVENT_TIME, store).register(keys // 2, 1)
    snapshot = store.snapshot()
    written = sum(len(entries.kept[place]) for place in entries.written)
    return written + len(CODEC.seal(BlobKind.STATE, snapshot))


def test_bytes_of_a_micro_batch_hardly_depend_on_the_number_of_timers() -> None:
    assert cost_of_a_timer(200_000) < 2.5 * cost_of_a_timer(1_000)


# --- Damaged bytes --------------------------------------------------------------------------------------------------


def damaged(blob: bytes) -> dict[str, bytes]:
    """Damage to a page, by its error message."""
    return {
        "the bytes are damaged (length or checksum does not fit).": blob[:-1] + bytes([blob[-1] ^ 1]),
        "these bytes are not a page of dsv2.": b"XXXX" + blob[4:],
        f"written in format {FORMAT_VERSION + 1}, this version of dsv2 reads format {FORMAT_VERSION}.": (
            blob[:4] + bytes([FORMAT_VERSION + 1]) + blob[5:]
        ),
        "7 bytes are too few for a blob.": blob[:7],
    }


@pytest.mark.parametrize("said", damaged(b"DSV2" + bytes(20)))
def test_damaged_page_is_refused_with_its_operator(said: str) -> None:
    entries = KeptEntries()
    store = counted(1, entries)
    entries.kept["keys", 0] = damaged(entries.kept["keys", 0])[said]
    with pytest.raises(CorruptDataError) as refused:
        store.find(0)
    assert str(refused.value) == f"{OWNER}, page 0: {said}"


def test_missing_page_is_refused() -> None:
    entries = KeptEntries()
    store = counted(1, entries)
    entries.kept.clear()
    with pytest.raises(CorruptDataError) as refused:
        store.find(0)
    assert str(refused.value) == f"{OWNER}: page 0 is missing."


# --- Panes ------------------------------------------------------------------------------------------------------------


Model: TypeAlias = dict[int, tuple[int, bool, dict[Any, int]]]
"""Slot to deadline, whether the deadline is in event time, and values by key."""

STEPS = long_lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "look", "all", "move", "drop", "snapshot", "restore"]),
        st.integers(0, 3),
        st.integers(0, 9) | st.sampled_from(["a", "b", ("a", 1), 1.0]),
        st.integers(0, 99),
    ),
    max_size=60,
)


def new_panes(codec: Codec | None = None) -> PagedPanes:
    return PagedPanes(codec or Codec(TypeRegistry()), "PagedPanes", in_blob)


def reloaded(panes: PagedPanes, codec: Codec | None = None) -> PagedPanes:
    other = new_panes(codec)
    other.restore(panes.snapshot())
    return other


def value_in(pane: PagedPane, key: Any) -> Any:
    return pane.live[key] if key in pane.live else pane.take(key, "absent")


def contents(panes: PagedPanes) -> Model:
    copy = reloaded(panes)
    return {pane.slot: (pane.deadline, pane.by_event, dict(pane.take_all())) for pane in copy}


def filled(keys: range) -> PagedPanes:
    panes = new_panes()
    panes.open(0, 9, by_event=True).live.update({key: key for key in keys})
    return panes


@given(st.sampled_from([0, 64, 300]), STEPS)
def test_behave_like_dicts(before: int, steps: list[tuple[str, int, Any, int]]) -> None:
    """``before``: the number of existing keys in one of them, so that it has more than one page."""
    panes = reloaded(filled(range(100, 100 + before)))
    model: Model = {0: (9, True, {key: key for key in range(100, 100 + before)})}
    for what, slot, key, value in steps:
        pane = panes.get(slot)
        if pane is None:
            pane = panes.open(slot, value, by_event=slot % 2 == 0)
            model[slot] = value, slot % 2 == 0, {}
        deadline, by_event, values = model[slot]
        match what:
            case "put":
                assert value_in(pane, key) == values.get(key, "absent")
                pane.live[key] = values[key] = value
            case "look":
                assert value_in(pane, key) == values.get(key, "absent")
            case "all":
                assert pane.take_all() == values
            case "move":
                if slot % 2:
                    pane.deadline += value
                else:
                    value = -value
                    panes.hasten(pane, deadline + value)
                model[slot] = deadline + value, by_event, values
            case "drop":
                panes.drop(slot)
                del model[slot]
            case "snapshot":
                panes.snapshot()
            case "restore":
                panes = reloaded(panes)
        for of_event in (True, False):
            due = panes.next_due(of_event)
            times = [time for time, is_event, _ in model.values() if is_event is of_event]
            assert panes.next_deadline(of_event) == (None if due is None else due.deadline) == min(times, default=None)
        assert {pane.slot: set(pane) for pane in panes} == {slot: set(held) for slot, (_, _, held) in model.items()}
    assert contents(panes) == model


def test_later_window_of_equal_deadlines_comes_first() -> None:
    panes = new_panes()
    for slot in (10, 30, 20):
        panes.open(slot, 5, by_event=True)
    order = []
    while (pane := panes.next_due(by_event=True)) is not None:
        order.append(pane.slot)
        panes.drop(pane.slot)
    assert order == [30, 20, 10]


def test_only_the_page_of_a_touched_key_is_decoded() -> None:
    codec = CountingCodec()
    panes = reloaded(filled(range(1000)), codec)
    pane = panes.get(0)
    assert pane is not None
    before = panes.snapshot()
    assert (codec.decoded, codec.encoded) == (0, 0)
    assert (pane.take(17), pane.take("unknown")) == (17, None)
    pane.live[17] = "changed"
    after = panes.snapshot()
    assert codec.decoded <= 2
    assert codec.encoded == 1
    pages, later = before[0][3][1][1], after[0][3][1][1]
    assert sum(later[number] is not page for number, page in pages.items()) == 1


def test_keys_of_a_new_pane_are_not_hashed() -> None:
    """Most windows begin and end within a micro-batch. They cost a dict."""
    pane = new_panes().open(0, 9, by_event=True)
    assert pane.take(object()) is None  # has no stable hash


def test_empty_pane_with_a_deadline_is_kept() -> None:
    panes = new_panes()
    pane = panes.open(0, 9, by_event=True)
    assert panes.unscheduled(0) is pane
