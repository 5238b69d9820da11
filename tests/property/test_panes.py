"""PagedPanes compared with plain dicts. Only the pages of touched keys are decoded and encoded."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import in_blob
from dsv2.runtime.state.panes import PagedPane, PagedPanes
from tests.strategies import long_lists
from tests.support import CountingCodec

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
