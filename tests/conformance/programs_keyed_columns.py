"""Programs for functions on tables with keyed state and timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc

from dsv2 import Collector, OneInputStreamProcessFunction, PartitionedContext
from dsv2.aggregates import (
    ApproxCountDistinct,
    ArgMax,
    Collect,
    Count,
    CountDistinct,
    Custom,
    Key,
    Last,
    Max,
    Mean,
    Part,
    Sum,
    Variance,
    WindowEnd,
    WindowStart,
)
from dsv2.arrow import (
    ArrowCollector,
    ArrowContext,
    ArrowEventTimeProcessFunction,
    ArrowNonPartitionedContext,
    schema_of,
)
from dsv2.extension.window import WindowStrategy
from dsv2.state import AggregateFunction, StateDeclaration, StateDeclarations
from tests.conformance.functions import Stamped
from tests.conformance.harness import Pipeline, Program, Run

T = TypeVar("T")


class Click(NamedTuple):
    """A click."""

    user: str
    page: int
    time: int


class Seen(NamedTuple):
    """The state of a user, and the reason why it is emitted."""

    user: str
    clicks: int
    last: int
    why: str


class Known(NamedTuple):
    """The state of a user."""

    clicks: int
    last: int
    pages: list[int]


CLICKS = [Click(f"user {number * number % 7}", number % 3, 2 * number + 1) for number in range(30)]
KNOWN = StateDeclarations.value_state("known", Known, default=Known(0, 0, []))


class Follow(ArrowEventTimeProcessFunction[Click, Seen]):
    """Counts the clicks of each user. Emits the count at round times, and at the end."""

    key: tuple[str, ...] = ("user",)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [KNOWN]

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Seen], ctx: ArrowContext[Seen]) -> None:
        known = ctx.keyed_state(KNOWN)
        keys = [batch[name] for name in self.key]
        added = {"clicks": pa.array([1] * batch.num_rows), "last": batch["time"]}
        known.aggregate(keys, added, {"clicks": "sum", "last": "max"})
        known.update(keys, {"pages": pa.array([[page] for page in batch["page"].to_pylist()], pa.list_(pa.int64()))})
        times = batch["time"].to_numpy()
        ctx.event_timers.register(keys, times - times % 20 + 20)

    def on_event_timers(self, timers: pa.Table, output: ArrowCollector[Seen], ctx: ArrowContext[Seen]) -> None:
        times = timers["timestamp"].unique().to_pylist()
        for time in times:
            keys = timers.filter(pc.equal(timers["timestamp"], time))
            found = ctx.keyed_state(KNOWN).get([keys[name] for name in self.key])
            users = keys[self.key[0]]
            why = pa.array([f"at {time}"] * len(users))
            output.collect_batch(pa.table([users, found["clicks"], found["last"], why], schema_of(Seen)))

    def end_input(self, output: ArrowCollector[Seen], ctx: ArrowNonPartitionedContext[Seen]) -> None:
        ctx.apply_to_all_partitions(self.report)

    def report(self, output: ArrowCollector[Seen], ctx: ArrowContext[Seen]) -> None:
        """Emit all users."""
        for table in ctx.keyed_state(KNOWN).tables():
            why = pa.array(["end"] * table.num_rows)
            output.collect_batch(pa.table([table["user"], table["clicks"], table["last"], why], schema_of(Seen)))


class FollowPages(Follow):
    """By user and page."""

    key = ("user", "page")


class StateInColumns(Program):
    """State and timers of many keys at once are those of single keys."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed(CLICKS, attrgetter("time"))
        p.collect(timed.key_by(attrgetter("user")).process(Follow()), "users")
        p.collect(timed.key_by(attrgetter("user", "page")).process(FollowPages()), "pages")

    def check(self, run: Run) -> None:
        for name, key in (("users", attrgetter("user")), ("pages", attrgetter("user", "page"))):
            expected = []
            for group in {key(click) for click in CLICKS}:
                own = [click for click in CLICKS if key(click) == group]
                expected.append(Seen(own[0].user, len(own), own[-1].time, "end"))
                for until in {click.time - click.time % 20 + 20 for click in own}:
                    # The click at t is followed by the watermark t - 1.
                    so_far = [click for click in own if click.time <= until + 1]
                    expected.append(Seen(own[0].user, len(so_far), so_far[-1].time, f"at {until}"))
            run.expect_all(*expected, name=name)


class Sums(NamedTuple):
    """Running aggregates."""

    user: str
    clicks: int
    pages: int
    mean: float
    last: int


class WindowSums(NamedTuple):
    """Aggregates of a window."""

    user: str
    start: int
    clicks: int
    pages: int
    mean: float


class Visit(NamedTuple):
    """Aggregates of a session."""

    user: str
    start: int
    end: int
    clicks: int
    mean: float
    last: int


class Details(NamedTuple):
    """Aggregates that are not combined before the exchange."""

    user: str
    pages: int
    about: int
    others: int
    visited: list[int]
    last: int
    spread: float
    sum: int


class Adding(AggregateFunction[int, int, int]):
    """A sum."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


DETAILS: dict[str, Part] = {
    "user": Key(),
    "pages": CountDistinct("page"),
    "about": ApproxCountDistinct("page"),
    "others": Count(filter=nw.col("page") != 1),
    "visited": Collect("page"),
    "last": ArgMax("page", by="time"),
    "spread": Variance("page", population=True),
    "sum": Custom("page", Adding()),
}


def details(user: str, pages: list[int]) -> Details:
    """The aggregates of pages in the order of their times."""
    count, first = len(set(pages)), pages[0]
    others = sum(page != 1 for page in pages)
    total, squares = sum(page - first for page in pages), sum((page - first) ** 2 for page in pages)
    spread = (squares - total * total / len(pages)) / len(pages)
    return Details(user, count, count, others, pages, pages[-1], spread, sum(pages))


class DeclaredSessions(Program):
    """Declared aggregates of sessions on columns and on single records are equal, as are their timestamps."""

    GAP = 5

    def build(self, p: Pipeline) -> None:
        timed = p.timed(CLICKS, attrgetter("time"))
        sessions = WindowStrategy.session(timedelta(milliseconds=self.GAP))
        for name, keyed in (("columns", timed.key_by(attrgetter("user"))), ("rows", timed.key_by(user_of))):
            visits = keyed.window(sessions).aggregate(
                Visit,
                user=Key(),
                start=WindowStart(),
                end=WindowEnd(),
                clicks=Count(),
                mean=Mean("page"),
                last=Last("page"),
            )
            p.collect(visits.process(Stamped()), name)

    def check(self, run: Run) -> None:
        expected = []
        for user in {click.user for click in CLICKS}:
            visits: list[list[Click]] = []
            for click in CLICKS:
                if click.user == user:
                    if not visits or click.time >= visits[-1][-1].time + self.GAP:
                        visits.append([])
                    visits[-1].append(click)
            for clicks in visits:
                pages = [click.page for click in clicks]
                end = clicks[-1].time + self.GAP
                visit = Visit(user, clicks[0].time, end, len(pages), sum(pages) / len(pages), pages[-1])
                expected.append((visit, end - 1))
        run.expect_all(*expected, name="columns")
        run.expect_all(*expected, name="rows")


class CumulatingWindows(Program):
    """Declared aggregates of cumulating windows on columns and on single records are equal, as are their timestamps."""

    STEP, SIZE = 8, 24

    def build(self, p: Pipeline) -> None:
        timed = p.timed(CLICKS, attrgetter("time"))
        windows = WindowStrategy.cumulate(timedelta(milliseconds=self.STEP), timedelta(milliseconds=self.SIZE))
        for name, keyed in (("columns", timed.key_by(attrgetter("user"))), ("rows", timed.key_by(user_of))):
            visits = keyed.window(windows).aggregate(
                Visit,
                user=Key(),
                start=WindowStart(),
                end=WindowEnd(),
                clicks=Count(),
                mean=Mean("page"),
                last=Max("time"),
            )
            p.collect(visits.process(Stamped()), name)

    def check(self, run: Run) -> None:
        expected = []
        for user in {click.user for click in CLICKS}:
            for start in range(0, 60, self.SIZE):
                for end in range(start + self.STEP, start + self.SIZE + 1, self.STEP):
                    inside = [click for click in CLICKS if click.user == user and start <= click.time < end]
                    if inside:
                        mean = sum(click.page for click in inside) / len(inside)
                        expected.append((Visit(user, start, end, len(inside), mean, inside[-1].time), end - 1))
        run.expect_all(*expected, name="columns")
        run.expect_all(*expected, name="rows")


class DeclaredAggregates(Program):
    """Declared aggregates on columns and on single records are equal, as are their timestamps."""

    def build(self, p: Pipeline) -> None:
        timed = p.timed(CLICKS, attrgetter("time"))
        windows = WindowStrategy.sliding(timedelta(milliseconds=10), timedelta(milliseconds=5))
        for name, keyed in (("columns", timed.key_by(attrgetter("user"))), ("rows", timed.key_by(user_of))):
            running = keyed.aggregate(
                Sums, user=Key(), clicks=Count(), pages=Sum("page"), mean=Mean("page"), last=Max("time")
            )
            p.collect(running.process(Stamped()), f"running on {name}")
            if name == "columns":
                updates = keyed.mini_batch().aggregate(
                    Sums, user=Key(), clicks=Count(), pages=Sum("page"), mean=Mean("page"), last=Max("time")
                )
                p.collect(updates.process(Stamped()), "mini-batches")
            of_windows = keyed.window(windows).aggregate(
                WindowSums, user=Key(), start=WindowStart(), clicks=Count(), pages=Sum("page"), mean=Mean("page")
            )
            p.collect(of_windows.process(Stamped()), f"windows on {name}")
            p.collect(keyed.aggregate(Details, **DETAILS), f"running details on {name}")
            p.collect(keyed.window(windows).aggregate(Details, **DETAILS), f"details of windows on {name}")

    def check(self, run: Run) -> None:
        for name in ("columns", "rows"):
            expected: list[Any] = []
            of_windows: list[Any] = []
            running_details, window_details = list[Details](), list[Details]()
            for user in {click.user for click in CLICKS}:
                own = [click for click in CLICKS if click.user == user]
                for number, click in enumerate(own, start=1):
                    pages = sum(one.page for one in own[:number])
                    expected.append((Sums(user, number, pages, pages / number, click.time), click.time))
                    running_details.append(details(user, [one.page for one in own[:number]]))
                for start in range(-5, 60, 5):
                    inside = [click for click in own if start <= click.time < start + 10]
                    if inside:
                        pages = sum(click.page for click in inside)
                        result = WindowSums(user, start, len(inside), pages, pages / len(inside))
                        of_windows.append((result, start + 9))
                        window_details.append(details(user, [click.page for click in inside]))
            run.expect_all(*expected, name=f"running on {name}")
            run.expect_all(*of_windows, name=f"windows on {name}")
            run.expect_all(*running_details, name=f"running details on {name}")
            run.expect_all(*window_details, name=f"details of windows on {name}")
            every = set(expected)
        updates = run.out("mini-batches")
        assert set(updates) <= every
        latest = {sums.user: sums for sums, _ in updates}
        assert latest == {sums.user: sums for sums, _ in sorted(every, key=lambda one: one[0].clicks)}


class WindowCount(NamedTuple):
    """The clicks of a user in a window."""

    user: str
    start: int
    clicks: int


class Hour(NamedTuple):
    """The clicks of a group of users."""

    users: str
    hour: int
    clicks: int


class CurrentKey(OneInputStreamProcessFunction[Click, tuple[Click, Any]]):
    """Emits each record with the current key."""

    def process_record(
        self, record: Click, output: Collector[tuple[Click, Any]], ctx: PartitionedContext[tuple[Click, Any]]
    ) -> None:
        output.collect((record, ctx.state_manager.current_key))


class ComputedKeys(Program):
    """Expressions are keys of functions on records and of operators on columns."""

    def build(self, p: Pipeline) -> None:
        clicks = p.timed(CLICKS, attrgetter("time"))
        users = nw.when(nw.col("user") < "user 2").then(nw.lit("some")).otherwise(nw.lit("others"))
        keyed = clicks.key_by(users, nw.col("time") // 20)
        p.collect(keyed.process(CurrentKey()), "records")
        p.collect(keyed.aggregate(Hour, users=Key(0), hour=Key(1), clicks=Count()), "running")
        windows = WindowStrategy.tumbling(timedelta(milliseconds=20))
        p.collect(keyed.window(windows).aggregate(Hour, users=Key(0), hour=Key(1), clicks=Count()), "windows")

    def check(self, run: Run) -> None:
        keys = [("some" if click.user < "user 2" else "others", click.time // 20) for click in CLICKS]
        run.expect_all(*zip(CLICKS, keys, strict=True), name="records")
        run.expect_all(*(Hour(*key, keys[: at + 1].count(key)) for at, key in enumerate(keys)), name="running")
        run.expect_all(*(Hour(*key, keys.count(key)) for key in set(keys)), name="windows")


class WindowsByTheClock(Program):
    """Windows in processing time have all records, on columns and on single records."""

    def build(self, p: Pipeline) -> None:
        clicks = p.timed(CLICKS, attrgetter("time"))
        windows = WindowStrategy.tumbling(timedelta(milliseconds=50), "processing")
        for name, key in (("columns", attrgetter("user")), ("rows", user_of)):
            counts = clicks.key_by(key).window(windows)
            p.collect(counts.aggregate(WindowCount, user=Key(), start=WindowStart(), clicks=Count()), name)

    def check(self, run: Run) -> None:
        for name in ("columns", "rows"):
            clicks = dict.fromkeys((click.user for click in CLICKS), 0)
            for user, start, count in run.out(name):
                assert start % 50 == 0
                clicks[user] += count
            assert clicks == Counter(click.user for click in CLICKS)


def user_of(click: Click) -> str:
    """The key, not as a column."""
    return click.user


PROGRAMS = (
    StateInColumns(),
    DeclaredAggregates(),
    DeclaredSessions(),
    CumulatingWindows(),
    ComputedKeys(),
    WindowsByTheClock(),
)
