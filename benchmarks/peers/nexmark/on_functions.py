"""Functions on single records, on the local runtime in one process, with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any

from benchmarks.jobs import nexmark_functions as on
from benchmarks.jobs.nexmark import generated, number_field, result_class
from benchmarks.peers.dsv2_job import add_up
from benchmarks.peers.local import run_local
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import (
    Collector,
    NonKeyedPartitionStream,
    OneInputStreamProcessFunction,
    PartitionedContext,
    RuntimeContext,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.extension.join import JoinFunction, JoinMode, JoinType, join
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.state import aggregate_of
from examples.nexmark.events import Bid, Person
from examples.nexmark.source import Nexmark
from examples.nexmark.stateless import EuroBid, Price
from examples.nexmark.windows import HighestBid, NewSeller, Session

__all__ = ("measure",)

_WINDOW = timedelta(milliseconds=on.WINDOW)


def _one_key(bid: Bid) -> int:
    return 0


def _euros(nexmark: Nexmark) -> NonKeyedPartitionStream[EuroBid]:
    return nexmark.bids.map(on.euros)


def _some_auctions(nexmark: Nexmark) -> NonKeyedPartitionStream[Price]:
    return nexmark.bids.filter(on.is_chosen).map(on.price_of)


def _highest_bids(nexmark: Nexmark) -> NonKeyedPartitionStream[HighestBid]:
    windows = nexmark.bids.key_by(_one_key).window(WindowStrategy.tumbling(_WINDOW))
    return windows.aggregate(aggregate_of(list[Bid], _with_price, on.highest_of)).flat_map(list)


def _with_price(bid: Bid, highest: list[Bid]) -> list[Bid]:
    return on.with_price(highest, bid)


class _NewSellers(JoinFunction[Person, None, NewSeller]):
    def process_record(self, left: Person, right: None, output: Collector[NewSeller], ctx: RuntimeContext) -> None:
        output.collect(on.new_seller(left))


def _new_sellers(nexmark: Nexmark) -> NonKeyedPartitionStream[NewSeller]:
    windows = JoinMode.window(WindowStrategy.tumbling(_WINDOW))
    return nexmark.people.key_by(on.id_of).connect_and_process(
        nexmark.auctions.key_by(on.seller_of), join(_NewSellers(), windows, JoinType.SEMI)
    )


def _sessions(nexmark: Nexmark) -> NonKeyedPartitionStream[Session]:
    windows = nexmark.bids.key_by(on.bidder_of).window(WindowStrategy.session(_WINDOW))
    return windows.aggregate(aggregate_of(on.first_bid, _with_bid, _itself, on.merged), _session)


def _with_bid(bid: Bid, session: on.Bids) -> on.Bids:
    return on.with_bid(session, bid)


def _itself(session: on.Bids) -> on.Bids:
    return session


def _session(session: on.Bids, window: WindowContext, ctx: PartitionedContext[Session]) -> Session:
    bidder: Any = ctx.state_manager.current_key
    return Session(bidder, session.bids, window.start_time, window.end_time)


class _LastBids(OneInputStreamProcessFunction[Bid, Bid]):
    _time = StateDeclarations.value_state("time", int, default=0)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._time]

    def process_record(self, record: Bid, output: Collector[Bid], ctx: PartitionedContext[Bid]) -> None:
        time = ctx.state_manager.get_state(self._time)
        if record.time >= time.value():
            time.update(record.time)
            output.collect(record)


def _last_bids(nexmark: Nexmark) -> NonKeyedPartitionStream[Bid]:
    return nexmark.bids.key_by(on.pair_of).process(_LastBids())


_BUILD: dict[str, Callable[[Nexmark], NonKeyedPartitionStream[Any]]] = {
    "q1": _euros,
    "q2": _some_auctions,
    "q7": _highest_bids,
    "q8": _new_sellers,
    "q11": _sessions,
    "q18": _last_bids,
}


def measure(task: Task) -> Outcome:
    """Run the query."""
    kind = result_class(task.mode)
    place = list(kind._fields).index(number_field(kind))
    return run_local(lambda env: add_up(_BUILD[task.mode](generated(env, task)), place), task)
