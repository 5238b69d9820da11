"""Bytewax, one worker, in memory: queries that it can express. Events are generated as for dsv2."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import bytewax.operators as op
import numpy as np
import pyarrow as pa
from bytewax.dataflow import Dataflow
from bytewax.operators import KeyedStream, Stream
from bytewax.operators.windowing import EventClock, SessionWindower, TumblingWindower, fold_window

from benchmarks.jobs import nexmark_functions as on
from benchmarks.jobs.nexmark import RATE, number_field, result_class
from benchmarks.peers.bytewax_flow import GeneratedTogether, Tally, run
from benchmarks.peers.protocol import Outcome, Task
from examples.nexmark.events import PER_ROUND, Auction, Bid, Person, auctions, bids, people
from examples.nexmark.windows import Session

__all__ = ("measure",)

_EPOCH = datetime.fromtimestamp(0, UTC)
_WINDOW = timedelta(milliseconds=on.WINDOW)
_WAIT = timedelta(seconds=60)
"""In Bytewax, event time advances with the clock. With this wait, no event of a run is late."""
_EVENTS: dict[type[Any], Callable[..., pa.Table]] = {Person: people, Auction: auctions, Bid: bids}


def _generated(numbers: range, kinds: tuple[type[Any], ...]) -> list[Any]:
    rounds = np.arange(numbers.start // PER_ROUND, numbers.stop // PER_ROUND)
    tables = [(kind, _EVENTS[kind](rounds, RATE)) for kind in kinds]
    return [
        event
        for kind, table in tables
        for event in map(kind._make, zip(*(column.to_pylist() for column in table.columns), strict=True))
    ]


def _moment(event: Any) -> datetime:
    return _EPOCH + timedelta(milliseconds=on.time_of(event))


_CLOCK = EventClock(_moment, _WAIT)
_TUMBLING = TumblingWindower(length=_WINDOW, align_to=_EPOCH)


def _contents(results: KeyedStream) -> Stream:
    """The contents of windows, with their keys."""
    return op.map("contents", results, lambda result: (result[0], result[1][1]))


def _euros(events: Stream) -> Stream:
    return op.map("euros", events, on.euros)


def _some_auctions(events: Stream) -> Stream:
    return op.map("prices", op.filter("some", events, on.is_chosen), on.price_of)


def _highest_bids(events: Stream) -> Stream:
    keyed = op.key_on("one key", events, lambda bid: "")
    windows = fold_window("windows", keyed, _CLOCK, _TUMBLING, list, on.with_price, _no_merge, ordered=False)
    return op.flat_map("highest", _contents(windows.down), lambda of_window: on.highest_of(of_window[1]))


def _new_sellers(events: Stream) -> Stream:
    def key_of(event: Person | Auction) -> str:
        return str(on.id_of(event) if isinstance(event, Person) else on.seller_of(event))

    def with_event(found: tuple[Person | None, bool], event: Person | Auction) -> tuple[Person | None, bool]:
        return (event, found[1]) if isinstance(event, Person) else (found[0], True)

    keyed = op.key_on("sellers", events, key_of)
    windows = fold_window(
        "windows", keyed, _CLOCK, _TUMBLING, lambda: (None, False), with_event, _no_merge, ordered=False
    )
    sellers = op.filter("sells", _contents(windows.down), lambda of_window: all(of_window[1]))
    return op.map("new sellers", sellers, lambda of_window: on.new_seller(of_window[1][0]))


def _sessions(events: Stream) -> Stream:
    keyed = op.key_on("bidders", events, lambda bid: str(on.bidder_of(bid)))
    windower = SessionWindower(gap=_WINDOW)
    windows = fold_window("sessions", keyed, _CLOCK, windower, on.first_bid, on.with_bid, on.merged, ordered=False)
    return op.map(
        "results",
        _contents(windows.down),
        lambda one: Session(int(one[0]), one[1].bids, one[1].first, one[1].last + on.WINDOW),
    )


def _last_bids(events: Stream) -> Stream:
    def later(time: int | None, bid: Bid) -> tuple[int, list[Bid]]:
        return (bid.time, [bid]) if time is None or bid.time >= time else (time, [])

    keyed = op.key_on("pairs", events, lambda bid: str(on.pair_of(bid)))
    return op.map("bids", op.stateful_flat_map("last", keyed, later), lambda pair: pair[1])


def _no_merge(first: Any, second: Any) -> Any:
    raise AssertionError("These windows do not merge.")


_BUILD: dict[str, tuple[Callable[[Stream], Stream], tuple[type[Any], ...]]] = {
    "q1": (_euros, (Bid,)),
    "q2": (_some_auctions, (Bid,)),
    "q7": (_highest_bids, (Bid,)),
    "q8": (_new_sellers, (Person, Auction)),
    "q11": (_sessions, (Bid,)),
    "q18": (_last_bids, (Bid,)),
}


def measure(task: Task) -> Outcome:
    """Run the dataflow. Times must be ``datetime`` objects, and keys must be strings."""
    build, kinds = _BUILD[task.mode]
    kind = result_class(task.mode)
    place = list(kind._fields).index(number_field(kind))
    source, tally = GeneratedTogether(task, partial(_generated, kinds=kinds)), Tally()

    def numbers(results: list[Any]) -> list[tuple[str, int]]:
        return [("", result[place]) for result in results]

    flow = Dataflow("nexmark")
    results = build(op.input("events", flow, source))
    op.output("numbers", op.flat_map_batch("numbers of results", results, numbers), tally)
    return run(flow, task, source.times, tally)
