"""The first, the last and the first ``n`` records of keys and windows, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Lag
from dsv2.errors import PlanError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.graph.record_types import declared_type_of
from dsv2.local import LocalRuntime
from dsv2.model import Change, ChangeKind
from dsv2.sinks import CollectSink
from dsv2.state import StateTtl
from dsv2.testing import ManualClock, OneInputHarness
from tests.durations import ms

SECOND = WindowStrategy.tumbling(timedelta(seconds=1))


class Bid(NamedTuple):
    """Input."""

    user: str
    time: int
    price: int | None
    tags: list[str]


class Top(NamedTuple):
    """A result with a rank and a window."""

    place: int
    price: int | None
    begin: int
    end: int


def bid(user: str, time: int, price: int | None = None) -> Bid:
    return Bid(user, time, price, [user])


BIDS = [
    bid("ada", 100, 3), bid("ben", 150, 5), bid("ada", 50, 7), bid("ada", 100, 7), bid("ben", 150), bid("ben", 140, 9),
    bid("ada", 1_200, 1), bid("ada", 1_100, 8), bid("ben", 90, 9),
]  # fmt: skip


def keyed(bids: list[Bid], *, timed: bool = True) -> Any:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[2], clock=ManualClock()))
    stream: Any = env.from_collection(bids)
    if timed:
        builder = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        stream = stream.process(builder.with_max_out_of_order_time(ms(2_000)).build_as_process_function())
    return env, stream.key_by(attrgetter("user"))


def results(apply: Callable[[Any], Any], *, timed: bool = True, bids: list[Bid] = BIDS) -> list[Any]:
    env, stream = keyed(bids, timed=timed)
    sink = CollectSink[Any]()
    apply(stream).to_sink(sink)
    env.execute()
    return sink.results


def of(user: str, bids: list[Any]) -> list[tuple[int, int | None]]:
    return [(one.time, one.price) for one in bids if one.user == user]


def test_last_by_timestamp_and_later_arrival() -> None:
    found = results(lambda stream: stream.last())
    assert of("ada", found) == [(100, 3), (100, 7), (1_200, 1)]
    assert of("ben", found) == [(150, 5), (150, None)]


def test_first_by_timestamp_and_earlier_arrival() -> None:
    found = results(lambda stream: stream.first())
    assert of("ada", found) == [(100, 3), (50, 7)]
    assert of("ben", found) == [(150, 5), (140, 9), (90, 9)]


def test_order_of_a_field_with_none() -> None:
    assert of("ben", results(lambda stream: stream.last("price"))) == [(150, 5), (140, 9), (90, 9)]
    assert of("ben", results(lambda stream: stream.first("price"))) == [(150, 5), (150, None)]


def test_order_of_arrival_without_timestamps() -> None:
    assert results(lambda stream: stream.last(), timed=False) == BIDS
    assert results(lambda stream: stream.first(), timed=False) == BIDS[:2]


def test_records_of_subclasses_stay() -> None:
    class Special(Bid):
        """A subclass."""

    special = Special("ada", 200, 9, [])
    (found,) = results(lambda stream: stream.last(records=Bid), bids=[special])
    assert type(found) is Special


def test_value_of_a_key_is_forgotten() -> None:
    env = ExecutionEnvironment.get_instance("local")
    last: Any = env.from_collection(BIDS).key_by(attrgetter("user")).last("price", ttl=StateTtl(timedelta(seconds=1)))
    one = OneInputHarness(last._node.body, key=attrgetter("user"))
    one.input.push(bid("ada", 1, 5), bid("ada", 2, 4))
    one.advance_clock(ms(999))
    one.input.push(bid("ada", 3, 3))
    one.advance_clock(ms(1))
    one.input.push(bid("ada", 4, 2))
    assert [one.time for one in one.output.records] == [1, 4]


def test_several_fields_with_directions() -> None:
    """The highest bid, and of equal ones the earliest."""
    found = results(lambda stream: stream.first(["price", "time"], descending=[True, False]))
    assert of("ada", found) == [(100, 3), (50, 7), (1_100, 8)]
    last = results(lambda stream: stream.window(SECOND).last(("price", "time"), descending=(False, True)))
    assert sorted(of("ada", last)) == [(50, 7), (1_100, 8)]
    assert of("ben", last) == [(90, 9)]
    assert of("ben", results(lambda stream: stream.last("time", descending=True))) == [
        (150, 5),
        (150, None),
        (140, 9),
        (90, 9),
    ]


class Offer(NamedTuple):
    """An offer that ends."""

    article: str
    time: int
    cents: int
    ends: int


def until_its_end() -> OneInputHarness[Any, Any]:
    source: Any = ExecutionEnvironment.get_instance("local").from_collection([Offer("tea", 0, 0, 0)])
    lowest = source.key_by(attrgetter("article")).first("cents", until="ends")
    return OneInputHarness(lowest._node.body, key=attrgetter("article"))


def offers_of(one: OneInputHarness[Any, Any]) -> list[tuple[Offer, int | None]]:
    found = list(zip(one.output.records, one.output.timestamps, strict=True))
    one.output.clear()
    return found


def test_record_is_emitted_at_its_time() -> None:
    one = until_its_end()
    one.input.push(Offer("tea", 1, 5, 20), Offer("jam", 2, 9, 15), Offer("tea", 3, 4, 40), timestamp=3)
    one.input.push_event_time(14)
    assert offers_of(one) == []
    one.input.push_event_time(30)  # the first offer of tea has been replaced
    assert offers_of(one) == [(Offer("jam", 2, 9, 15), 15)]
    one.restart()
    one.input.push(Offer("tea", 4, 4, 35), Offer("tea", 5, 1, 30), timestamp=31)
    one.input.push_event_time(40)
    assert offers_of(one) == [(Offer("tea", 3, 4, 40), 40)]
    one.input.push(Offer("tea", 50, 8, 60), timestamp=50)  # the key begins again
    one.end()
    assert offers_of(one) == [(Offer("tea", 50, 8, 60), 60)]


def test_first_and_last_of_windows() -> None:
    last = results(lambda stream: stream.window(SECOND).last())
    assert of("ada", last) == [(100, 7), (1_200, 1)]
    assert of("ben", last) == [(150, None)]
    first = results(lambda stream: stream.window(SECOND).first("price"))
    assert of("ada", first) == [(100, 3), (1_200, 1)]
    assert of("ben", first) == [(150, None)]


def test_top_n_of_windows() -> None:
    found = results(lambda stream: stream.window(SECOND).top_n(2, by="price"))
    assert of("ada", found) == [(50, 7), (100, 7), (1_100, 8), (1_200, 1)]
    assert of("ben", found) == [(140, 9), (90, 9)]
    ranked = results(
        lambda stream: stream.window(SECOND).top_n(
            2, Top, by="time", descending=False, rank="place", start="begin", end="end"
        )
    )
    assert sorted(ranked) == [
        Top(1, 7, 0, 1_000), Top(1, 8, 1_000, 2_000), Top(1, 9, 0, 1_000), Top(2, 1, 1_000, 2_000),
        Top(2, 3, 0, 1_000), Top(2, 9, 0, 1_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        ("row_number", [(1, 9), (2, 9), (3, 5)]),
        ("rank", [(1, 9), (1, 9), (3, 5)]),
        ("dense_rank", [(1, 9), (1, 9), (2, 5), (3, 1)]),
    ],
)
def test_ranks_of_equal_records(ties: Any, expected: list[tuple[int, int]]) -> None:
    bids = [bid("ada", 1, 5), bid("ada", 2, 9), bid("ada", 3, 9), bid("ada", 4, 1)]
    fields = {"rank": "place", "start": "begin", "end": "end"}
    found = results(lambda stream: stream.window(SECOND).top_n(3, Top, by="price", ties=ties, **fields), bids=bids)
    assert [(one.place, one.price) for one in found] == expected


class Changed(NamedTuple):
    """A change of a rank."""

    price: int | None
    place: int
    kind: str


def test_changes_of_one_record_at_a_time() -> None:
    """With the timestamps of the records that caused them."""
    one = OneInputHarness(keyed(BIDS)[1].top_n(2, by="price")._node.body, key=attrgetter("user"))
    for number, price in enumerate([3, 5, 4, 1]):
        one.input.push(bid("ada", number, price), timestamp=number)
    found = [
        (change.kind, change.record.price, time)
        for change, time in zip(one.output.records, one.output.timestamps, strict=True)
    ]
    assert found == [("+I", 3, 0), ("+I", 5, 1), ("-D", 3, 2), ("+I", 4, 2)]


def test_changes_of_ranks() -> None:
    top = keyed(BIDS)[1].top_n(2, Changed, by="price", rank="place", change="kind", descending=False)
    one = OneInputHarness(top._node.body, key=attrgetter("user"))
    for price in (3, 5, 4, 1):
        one.input.push(bid("ada", 0, price))
    assert one.output.records == [
        Changed(3, 1, "+I"), Changed(5, 2, "+I"), Changed(5, 2, "-U"), Changed(4, 2, "+U"), Changed(3, 1, "-U"),
        Changed(1, 1, "+U"), Changed(4, 2, "-U"), Changed(3, 2, "+U"),
    ]  # fmt: skip
    assert one.output.timestamps == [None] * 8


def test_ranked_changes_may_be_objects() -> None:
    found = results(lambda stream: stream.top_n(1, Placed, by="price", rank="place"), bids=[bid("ada", 0, 3)])
    assert found == [Change(ChangeKind.INSERT, Placed(3, 1))]
    assert found[0].kind.adds


class Placed(NamedTuple):
    """A record with a rank."""

    price: int | None
    place: int


@pytest.mark.parametrize(
    ("apply", "text"),
    [
        (lambda stream: stream.last("prize"), "has no field 'prize', only user, time, price, tags"),
        (lambda stream: stream.first([]), "one or more different fields, not \\[\\]"),
        (lambda stream: stream.first(["time", "time"]), "one or more different fields"),
        (lambda stream: stream.last(["time", "price"], descending=[True]), "one for each of the 2 fields, not"),
        (lambda stream: stream.top_n(1, by="time", ties="min"), "'row_number', 'rank', 'dense_rank', not 'min'"),
        (lambda stream: stream.top_n(1, Placed, by="time", ties="rank", rank="place"), "not unique with ties='rank'"),
        (lambda stream: stream.first("time", until="price"), "Bid has no field 'price' of type int for until"),
        (lambda stream: stream.first("tags"), "'tags' of Bid is a list, which has no order"),
        (lambda stream: stream.map(list).key_by(len).last(), r"must be one: key_by\('user'\)"),
        (lambda stream: stream.map(lambda bid: bid).key_by(attrgetter("user")).last(), "Pass it: records="),
        (lambda stream: stream.map(str).key_by(attrgetter("user")).last(), "str has no columns"),
        (lambda stream: stream.top_n(True, by=None), "at least 1, not True"),
        (lambda stream: stream.top_n(1, Changed, by=None, rank="place", change="price"), "'price' of type str"),
        (lambda stream: stream.window(SECOND).top_n(0, by=None), "at least 1, not 0"),
        (lambda stream: stream.window(SECOND).top_n(1, Top, by=None, rank="rank"), "no field 'rank' of type int"),
        (lambda stream: stream.window(SECOND).top_n(1, Top, by=None), "Bid has no field 'place' of Top"),
        (
            lambda stream: stream.window(WindowStrategy.session(timedelta(seconds=1))).last(),
            "the windows are not tumbling or sliding windows in event time. Call process",
        ),
    ],
)
def test_what_is_refused(apply: Any, text: str) -> None:
    with pytest.raises(PlanError, match=text):
        apply(keyed(BIDS)[1])


class Before(NamedTuple):
    """A record with the price of the one before."""

    user: str
    price: int | None
    before: int | None


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda bids: bids.over(rows=2).aggregate(Before, before=Lag("price")), Before),
        (lambda bids: bids.window(SECOND).top_n(1, Top, by="price", rank="place", start="begin", end="end"), Top),
        (lambda bids: bids.top_n(1, Changed, by="price", rank="place", change="kind"), Changed),
        (lambda bids: bids.top_n(1, by="price"), Change),
    ],
)
def test_class_of_the_results_is_known(build: Callable[[Any], Any], kind: type[Any]) -> None:
    _, bids = keyed(BIDS)
    assert declared_type_of(build(bids)._ref) is kind
