"""Programs for operators on the order of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import narwhals as nw

from dsv2.aggregates import Lag, Lead, Max, Mean, Sum
from dsv2.extension.window import WindowStrategy
from tests.conformance.functions import Stamped
from tests.conformance.harness import Pipeline, Program, Run


class Bid(NamedTuple):
    """A bid."""

    auction: str
    item: int
    time: int
    price: int


class Top(NamedTuple):
    """A bid with its rank in a window."""

    auction: str
    price: int
    time: int
    rank: int
    start: int


BIDS = [Bid(f"auction {n * n % 5}", n % 2, 2 * n + 1, n * 7 % 31) for n in range(30)]
SIZE = 20
WINDOWS = WindowStrategy.tumbling(timedelta(milliseconds=SIZE))


class FirstAndLast(Program):
    """The first and the last bid of an auction, of records that are rows and of columns."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed(BIDS, attrgetter("time"))
        for name, stream in (("rows", timed), ("columns", timed.where(nw.col("time") >= 0).with_parallelism(1))):
            keyed = stream.key_by(attrgetter("auction", "item"))
            p.collect(keyed.last("price").process(Stamped()), f"last in {name}")
            p.collect(keyed.first("price").process(Stamped()), f"first in {name}")
            p.collect(keyed.last(["item", "price"]).process(Stamped()), f"last of two fields in {name}")
            p.collect(keyed.last().process(Stamped()), f"latest in {name}")
            of_windows = keyed.window(WINDOWS)
            p.collect(of_windows.last("price").process(Stamped()), f"last of windows in {name}")
            p.collect(of_windows.first().process(Stamped()), f"first of windows in {name}")

    def check(self, run: Run) -> None:
        by_key: dict[tuple[str, int], list[Bid]] = {}
        for bid in BIDS:
            by_key.setdefault((bid.auction, bid.item), []).append(bid)
        for name in ("rows", "columns"):
            self.expect(run, f"last in {name}", by_key, lambda bid, before: bid.price >= max(before, default=-1))
            self.expect(
                run, f"last of two fields in {name}", by_key, lambda bid, before: bid.price >= max(before, default=-1)
            )
            self.expect(run, f"first in {name}", by_key, lambda bid, before: bid.price < min(before, default=99))
            self.expect(run, f"latest in {name}", by_key, lambda bid, before: True)
            last, first = [], []
            for bids in by_key.values():
                for start in range(0, 60, SIZE):
                    inside = [bid for bid in bids if start <= bid.time < start + SIZE]
                    if inside:
                        last.append((max(inside, key=lambda bid: (bid.price, bid.time)), start + SIZE - 1))
                        first.append((inside[0], start + SIZE - 1))
            run.expect_all(*last, name=f"last of windows in {name}")
            run.expect_all(*first, name=f"first of windows in {name}")

    def expect(
        self, run: Run, name: str, by_key: dict[Any, list[Bid]], is_emitted: Callable[[Bid, list[int]], bool]
    ) -> None:
        """Expect the bids for which ``is_emitted`` is true. It is called with the prices before."""
        expected = []
        for bids in by_key.values():
            for number, bid in enumerate(bids):
                if is_emitted(bid, [before.price for before in bids[:number]]):
                    expected.append((bid, bid.time))
        run.expect_all(*expected, name=name)


class Offer(NamedTuple):
    """A bid with the end of its auction."""

    auction: str
    time: int
    price: int
    ends: int


class WinningBids(Program):
    """The highest bid of each auction when it ends, of equal ones the first."""

    def build(self, p: Pipeline) -> None:
        by_auction = p.timed(self.offers(), attrgetter("time")).key_by(attrgetter("auction"))
        winning = by_auction.first(["price", "time"], descending=[True, False], until="ends")
        p.collect(winning.process(Stamped()))

    def check(self, run: Run) -> None:
        best: dict[str, Offer] = {}
        for offer in sorted(self.offers(), key=lambda offer: (offer.price, -offer.time)):
            best[offer.auction] = offer
        run.expect_all(*((offer, offer.ends) for offer in best.values()))

    @staticmethod
    def offers() -> list[Offer]:
        """Offers until the end of their auction, which some auctions reach before others begin."""
        return [Offer(f"auction {n // 6}", 10 * n, n * 7 % 5, 60 * (n // 6) + 55) for n in range(30)]


class TopOfWindows(Program):
    """The highest bids of an auction in each window, in their order."""

    def build(self, p: Pipeline) -> None:
        keyed = p.timed(BIDS, attrgetter("time")).key_by(attrgetter("auction"))
        sliding = WindowStrategy.sliding(timedelta(milliseconds=SIZE), timedelta(milliseconds=10))
        p.collect(keyed.window(WINDOWS).top_n(2, by="price"), "bids")
        by_item = keyed.window(WINDOWS).top_n(1, Top, by="item", ties="dense_rank", rank="rank", start="start")
        p.collect(by_item, "bids of the greatest item")
        by_both = keyed.window(WINDOWS).top_n(2, by=["item", "time"], descending=[True, False])
        p.collect(by_both, "bids by item and time")
        ranked = keyed.window(sliding).top_n(3, Top, by="price", rank="rank", start="start")
        p.collect(ranked.process(Stamped()), "ranked")

    def check(self, run: Run) -> None:
        expected: list[Any] = []
        ranked: list[Any] = []
        of_item: list[Any] = []
        by_both: list[Any] = []
        for auction in {bid.auction for bid in BIDS}:
            for start in range(-10, 60, 10):
                inside = [bid for bid in BIDS if bid.auction == auction and start <= bid.time < start + SIZE]
                inside.sort(key=lambda bid: -bid.price)
                if start % SIZE == 0:
                    expected += inside[:2]
                    greatest = max((bid.item for bid in inside), default=0)
                    of_item += [Top(auction, bid.price, bid.time, 1, start) for bid in inside if bid.item == greatest]
                    by_both += sorted(inside, key=lambda bid: (-bid.item, bid.time))[:2]
                for rank, bid in enumerate(inside[:3], start=1):
                    ranked.append((Top(auction, bid.price, bid.time, rank, start), start + SIZE - 1))
        run.expect_all(*expected, name="bids")
        run.expect_all(*ranked, name="ranked")
        run.expect_all(*of_item, name="bids of the greatest item")
        run.expect_all(*by_both, name="bids by item and time")


class TopChange(NamedTuple):
    """A change of a rank."""

    auction: str
    price: int
    rank: int
    kind: str


class OverBid(NamedTuple):
    """A bid with aggregates of the last ones of its auction."""

    auction: str
    time: int
    highest: int
    mean: float
    sum: int


class Neighbours(NamedTuple):
    """A bid with the prices of the bids before and after it."""

    auction: str
    time: int
    before: int | None
    after: int | None


class LastBids(Program):
    """Aggregates of the last bids of an auction, in the order of event time."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed(BIDS, attrgetter("time"))
        parts: dict[str, Any] = {"highest": Max("price"), "mean": Mean("price"), "sum": Sum("item")}
        for name, stream in (("rows", timed), ("columns", timed.where(nw.col("time") >= 0).with_parallelism(1))):
            keyed = stream.key_by(attrgetter("auction"))
            last = keyed.over(rows=3).aggregate(OverBid, **parts)
            p.collect(last.process(Stamped()), f"last three of {name}")
            span = keyed.over(range=timedelta(milliseconds=10)).aggregate(OverBid, **parts)
            p.collect(span.process(Stamped()), f"span of {name}")
            near = keyed.over(rows=1).aggregate(Neighbours, before=Lag("price", 2), after=Lead("price"))
            p.collect(near, f"neighbours in {name}")

    def check(self, run: Run) -> None:
        near: list[Any] = []
        for auction in {bid.auction for bid in BIDS}:
            bids = [bid for bid in BIDS if bid.auction == auction]
            around = [None, None, *(bid.price for bid in bids), None]
            near += [Neighbours(auction, bid.time, around[n], around[n + 3]) for n, bid in enumerate(bids)]
        for name in ("rows", "columns"):
            last: list[Any] = []
            span: list[Any] = []
            for number, bid in enumerate(BIDS):
                before = [one for one in BIDS[: number + 1] if one.auction == bid.auction]
                for results, bids in (
                    (last, before[-3:]),
                    (span, [one for one in before if one.time >= bid.time - 10]),
                ):
                    prices = [one.price for one in bids]
                    mean, total = sum(prices) / len(prices), sum(one.item for one in bids)
                    results.append((OverBid(bid.auction, bid.time, max(prices), mean, total), bid.time))
            run.expect_all(*last, name=f"last three of {name}")
            run.expect_all(*span, name=f"span of {name}")
            run.expect_all(*near, name=f"neighbours in {name}")


class RunningTop(Program):
    """What remains after the changes of the highest bids of an auction."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed(BIDS, attrgetter("time"))
        for name, stream in (("rows", timed), ("columns", timed.where(nw.col("time") >= 0).with_parallelism(1))):
            keyed = stream.key_by(attrgetter("auction"))
            p.collect(keyed.top_n(2, by="price"), f"changes of {name}")
            p.collect(keyed.top_n(2, TopChange, by="price", rank="rank", change="kind"), f"ranks of {name}")

    def check(self, run: Run) -> None:
        expected: list[Any] = []
        for auction in {bid.auction for bid in BIDS}:
            bids = sorted((bid for bid in BIDS if bid.auction == auction), key=lambda bid: -bid.price)[:2]
            expected += [(rank, bid) for rank, bid in enumerate(bids, start=1)]
        for name in ("rows", "columns"):
            remaining: Counter[Bid] = Counter()
            for change in run.out(f"changes of {name}"):
                remaining[change.record] += 1 if change.kind.adds else -1
            assert +remaining == Counter(bid for _, bid in expected)
            ranks: Counter[tuple[str, int, int]] = Counter()
            for one in run.out(f"ranks of {name}"):
                ranks[one.auction, one.rank, one.price] += 1 if one.kind in ("+I", "+U") else -1
            assert +ranks == Counter((bid.auction, rank, bid.price) for rank, bid in expected)


PROGRAMS = (FirstAndLast(), TopOfWindows(), LastBids(), RunningTop())
