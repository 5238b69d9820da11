"""Changes of a program that its checkpoint refuses, with their messages, and changes that it accepts.

Every change is made to the same program::

    tweets ──> clean ──> (by topic) count ──┬─> (by topic) join ──> sink
    users ──────────────────────────────────┘
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass, replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pytest
from msgspec import structs

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2 import aggregates as a
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.fingerprint import PYTHON
from dsv2.checkpoint.program import ProgramDescription
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.extension.window import (
    CountEvictor,
    OneInputWindowStreamProcessFunction,
    TimeEvictor,
    TimeType,
    WindowAssigner,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import reduced, windowed
from dsv2.functions import (
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sinks import CollectSink, ParallelSink, PrintSink, SinkBatch
from dsv2.sources import BaseSource, CollectionSource
from dsv2.state import ListStateDeclaration, StateDeclaration, StateDeclarations, StateTtl
from dsv2.watermark import Quantile, WatermarkDeclaration, new_builder
from tests.durations import ms
from tests.spans import Spans
from tests.support import reread
from tests.windows import WindowRecorder


class Tweet(NamedTuple):
    topic: str
    author: str


class Clean(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, *declarations: WatermarkDeclaration) -> None:
        self.declarations = declarations

    def declare_watermarks(self) -> tuple[WatermarkDeclaration, ...]:
        return self.declarations

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class OtherClean(Clean):
    """Another class with other code."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)


class Count(OneInputStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class CountIn(Count):
    """Counts in states."""

    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return self.states


class InWindows(OneInputWindowStreamProcessFunction[Any, Any]):
    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states

    def use_window_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None: ...


class CountAndLog(TwoOutputStreamProcessFunction[Any, Any, Any]):
    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None: ...


class Join(TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


def seen_with(*fields: tuple[str, type]) -> type:
    """A version of the class ``shop.Seen``."""
    made = make_dataclass("Seen", fields)
    made.__module__ = "shop"  # the module that make_dataclass sets depends on the Python version
    return made


def topic(record: Any) -> Any:
    return record.topic


def author(record: Any) -> Any:
    return record.author


NEWEST = new_builder("newest").type_long().combine_function_max()
DONE = new_builder("done").type_bool()


CLEAN, COUNT, JOIN = Clean(NEWEST.build()), Count(), Join()


@dataclass(frozen=True)
class Program:
    """The program, with everything that may change."""

    sources: tuple[str, ...] = ("tweets", "users")
    clean: ProcessFunction = CLEAN
    clean_uid: str = "clean"
    clean_name: str = "Clean"
    shuffled: bool = False
    count: ProcessFunction = COUNT
    join: TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any] = JOIN
    parallelism: int = 2
    max_parallelism: int = 128
    key: Callable[[Any], Any] = topic
    keeps_key: Callable[[Any], Any] = topic
    second_output: bool = False
    swapped: bool = False
    extra: str | None = None
    audit: ProcessFunction = COUNT
    sinks: int = 1

    def described(self) -> ProgramDescription:
        """The description as it is read back from a checkpoint."""
        env = ExecutionEnvironment.get_instance("local")
        env.set_parallelism(2)
        streams = {name: env.from_collection([Tweet("a", "b")], name).with_uid(name) for name in self.sources}
        tweets: Any = streams["tweets"]
        clean = (tweets.shuffle() if self.shuffled else tweets).process(self.clean)
        clean.with_uid(self.clean_uid).with_name(self.clean_name)
        keys = {"new_key_selector": self.keeps_key}
        if isinstance(self.count, TwoOutputStreamProcessFunction):
            keys = {"first_key_selector": self.keeps_key, "second_key_selector": topic}
        count = clean.key_by(self.key).process(self.count, **keys)
        count.with_uid("count").with_parallelism(self.parallelism).with_max_parallelism(self.max_parallelism)
        if isinstance(self.count, TwoOutputStreamProcessFunction):
            count = count.second if self.second_output else count.first
        if self.extra is not None:
            count.process(self.audit).with_uid(self.extra)
        for _ in range(self.sinks - 1):
            count.to_sink(PrintSink())
        inputs = [count, streams["users"].key_by(topic)]
        first, second = reversed(inputs) if self.swapped else inputs
        first.connect_and_process(second, self.join).with_uid("join").to_sink(CollectSink())
        return reread(describe(env.build_plan("job")))


def pair(left: Any, right: Any, output: Any, ctx: Any) -> None: ...


def declaring(*builders: Any) -> Program:
    return Program(clean=Clean(*(builder.build() for builder in builders)))


def long_watermark() -> Any:
    return new_builder("newest").type_long().combine_function_max()


PROGRAM = Program()
TWO_OUTPUTS = Program(count=CountAndLog())
COUNTING = Program(count=CountIn(StateDeclarations.value_state("total", int)))

# The program before, the program after, and the messages: "+" if a savepoint carries the change, otherwise "-".
# AT(uid) stands for the operator and its location.
VALUE = StateDeclarations.value_state

REFUSED: dict[str, tuple[Program, Program, list[str]]] = {
    "another uid": (
        PROGRAM,
        replace(PROGRAM, clean_uid="wash"),
        [
            "+ AT(clean) was removed, or has another uid",
            "+ AT(wash) is new, or has another uid",
            "+ AT(count): the origin of input 0 was 'clean' and is now 'wash'",
        ],
    ),
    "kind": (PROGRAM, TWO_OUTPUTS, ["- AT(count): its kind was one-input and is now two-output"]),
    "parallelism": (
        PROGRAM,
        replace(PROGRAM, parallelism=3),
        ["+ AT(count): its parallelism was 2 and is now 3",
         "+ AT(join): the partitioning of input 0 was 'forward' and is now 'hash'"],
    ),
    "key": (
        COUNTING,
        replace(COUNTING, key=author),
        ["- AT(count): the key selector of input 0 has changed"],
    ),
    "key of an operator without state": (
        PROGRAM,
        replace(PROGRAM, key=author),
        ["+ AT(count): the key selector of input 0 has changed"],
    ),
    "key of the output": (
        COUNTING,
        replace(COUNTING, keeps_key=author),
        ["- AT(count): the key selector of output 0 has changed",
         "+ AT(join): the key selector of input 0 has changed"],
    ),
    "origin": (
        PROGRAM,
        replace(PROGRAM, swapped=True),
        ["+ AT(join): the origin of input 0 was 'count' and is now 'users'",
         "+ AT(join): the partitioning of input 0 was 'forward' and is now 'hash'",
         "+ AT(join): the origin of input 1 was 'users' and is now 'count'",
         "+ AT(join): the partitioning of input 1 was 'hash' and is now 'forward'"],
    ),
    "output": (
        TWO_OUTPUTS,
        replace(TWO_OUTPUTS, second_output=True),
        ["+ AT(join): the output of input 0 was 0 and is now 1"],
    ),
    "order": (
        PROGRAM,
        replace(PROGRAM, sources=("users", "tweets")),
        ["+ the order of the sources was tweets, users and is now users, tweets"],
    ),
    "type of a state": (
        replace(PROGRAM, count=CountIn(VALUE("total", int), VALUE("seen", Tweet))),
        replace(PROGRAM, count=CountIn(VALUE("seen", Tweet), VALUE("total", str))),
        ["- AT(count): state 'total': its type was int and is now str"],
    ),
    "fields of a class of a state": (
        replace(PROGRAM, count=CountIn(VALUE("seen", seen_with(("at", int))))),
        replace(PROGRAM, count=CountIn(VALUE("seen", seen_with(("at", str), ("by", str))))),
        ["- AT(count): state 'seen': field 'at' of shop.Seen was int and is now str",
         "- AT(count): state 'seen': shop.Seen has a new field 'by' without a default. Give it one"],
    ),
    "kind and time to live of a state": (
        replace(PROGRAM, count=CountIn(VALUE("total", int))),
        replace(PROGRAM, count=CountIn(ListStateDeclaration("total", int, ttl=StateTtl(timedelta(hours=1))))),
        ["- AT(count): state 'total': its kind was ValueState and is now ListState",
         "- AT(count): state 'total': its time to live was False and is now True"],
    ),
    "windows": (
        replace(PROGRAM, count=windowed(WindowStrategy.tumbling(ms(10)), InWindows())),
        replace(PROGRAM, count=windowed(WindowStrategy.tumbling(ms(20)), InWindows())),
        ["- AT(count): the content of its state was windows of 10 ms every 10 ms from 0 ms in event time, 0 ms late, "
         "which hold records and is now windows of 20 ms every 20 ms from 0 ms in event time, 0 ms late, which hold "
         "records"],
    ),
    "interval join": (
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(-5), ms(5)))),
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(-5), ms(5)), JoinType.LEFT)),
        ["- AT(join): the content of its state was the records that wait for partners in INNER interval joins and is "
         "now the records that wait for partners in LEFT interval joins"],
    ),
    "rows of a temporal join": (
        replace(PROGRAM, join=join(pair, JoinMode.temporal())),
        replace(PROGRAM, join=join(pair, JoinMode.temporal(), row_key=str)),
        ["- AT(join): the content of its state was the latest row of each key of the build side, and the probe records "
         "that wait for its snapshot and is now the latest rows of each key of the build side, and the probe records "
         "that wait for its snapshot"],
    ),
    "time of an interval": (
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(-5), ms(5)))),
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(-5), ms(5), "processing"))),
        ["+ AT(join): its use of processing-time timers was False and is now True",
         "- AT(join): the content of its state was the records that wait for partners in INNER interval joins and is "
         "now the records that wait for partners in INNER interval joins by the clock"],
    ),
    "join in windows": (
        replace(PROGRAM, join=join(pair, JoinMode.window(WindowStrategy.session(ms(5))))),
        replace(PROGRAM, join=join(pair, JoinMode.window(WindowStrategy.session(ms(5))), JoinType.SEMI)),
        ["- AT(join): the content of its state was sessions in event time, which hold records of two inputs, "
         "for INNER joins and is now sessions in event time, which hold records of two inputs, for SEMI joins"],
    ),
    "another join": (
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(-5), ms(5)))),
        replace(PROGRAM, join=join(pair, JoinMode.temporal())),
        ["+ AT(join): its use of processing-time timers was False and is now True",
         "- AT(join): the content of its state was the records that wait for partners in INNER interval joins and is "
         "now the latest row of each key of the build side, and the probe records that wait for its snapshot",
         "+ watermark 'BUILTIN_API_EVENT_TIME_IDLE' is newly declared",
         "+ watermark 'BUILTIN_API_EVENT_TIME_USE_PROCESSING_TIME' is newly declared"],
    ),
    "running join in windows": (
        replace(PROGRAM, join=join(pair, JoinMode.window(WindowStrategy.tumbling(ms(5))))),
        replace(PROGRAM, join=join(pair, JoinMode.window(WindowStrategy.tumbling(ms(5)), running=True))),
        ["- AT(join): the content of its state was windows of 5 ms every 5 ms from 0 ms in event time, 0 ms late, "
         "which hold records of two inputs, for INNER joins and is now windows of 5 ms every 5 ms from 0 ms in event "
         "time, 0 ms late, which hold records of two inputs, for running INNER joins"],
    ),
    "time to live of a join": (
        replace(PROGRAM, join=join(pair)),
        replace(PROGRAM, join=join(pair, JoinMode.unbounded(ttl=StateTtl(ms(5))))),
        ["- AT(join): state 'left': its time to live was False and is now True",
         "- AT(join): state 'right': its time to live was False and is now True"],
    ),
    "time to live of a versioned join": (
        replace(PROGRAM, join=join(pair, JoinMode.versioned())),
        replace(PROGRAM, join=join(pair, JoinMode.versioned(ttl=StateTtl(ms(5))))),
        ["- AT(join): state 'versions': its time to live was False and is now True"],
    ),
    "what windows hold": (
        replace(PROGRAM, count=windowed(WindowStrategy.session(ms(10)), InWindows())),
        replace(PROGRAM, count=reduced(WindowStrategy.session(ms(20)), max)),
        ["- AT(count): the content of its state was sessions in event time, which hold records and is now sessions in "
         "event time, which hold reduced records"],
    ),
    "type of a window state": (
        replace(PROGRAM, count=windowed(WindowStrategy.global_(), InWindows(VALUE("total", int)))),
        replace(PROGRAM, count=windowed(WindowStrategy.global_(), InWindows(VALUE("total", str)))),
        ["- AT(count): state 'total (further)': its type was int and is now str"],
    ),
    "watermark waits": (
        PROGRAM,
        declaring(long_watermark().combine_wait_for_all_channels(True)),
        ["- watermark 'newest': wait for all channels was False and is now True"],
    ),
    "watermark aligned": (
        declaring(long_watermark().combine_wait_for_all_channels(True)),
        declaring(long_watermark().combine_wait_for_all_channels(True).aligned()),
        ["- watermark 'newest': aligned was False and is now True"],
    ),
    "watermark becomes a barrier": (
        declaring(long_watermark().combine_function_min().combine_wait_for_all_channels(True).aligned()),
        declaring(long_watermark().barrier()),
        ["- watermark 'newest': barrier was False and is now True"],
    ),
    "watermark combined across inputs": (
        PROGRAM,
        declaring(long_watermark().combine_across_inputs(True)),
        ["- watermark 'newest': across inputs was False and is now True"],
    ),
    "watermark combined across inputs in another way": (
        declaring(long_watermark().combine_across_inputs(True)),
        declaring(long_watermark().combine_across_inputs(True, Quantile(0.5))),
        ["- watermark 'newest': across inputs function was that of the channels and is now QUANTILE(0.5)"],
    ),
    "watermark delivered on arrival": (
        declaring(long_watermark()),
        declaring(long_watermark().deliver_on_arrival()),
        ["+ watermark 'newest': delivery was ON_CHANGE and is now ON_ARRIVAL"],
    ),
    "watermark with sets as values": (
        declaring(long_watermark()),
        declaring(new_builder("newest").type_set(str)),
        ["- watermark 'newest': type was type_long() and is now type_set()",
         "- watermark 'newest': function was MAX and is now UNION"],
    ),
    "watermark of another type": (
        PROGRAM,
        declaring(new_builder("newest").type_bool()),
        ["- watermark 'newest': type was type_long() and is now type_bool()",
         "- watermark 'newest': function was MAX and is now AND"],
    ),
    "several at once": (
        PROGRAM,
        replace(declaring(DONE), key=author, shuffled=True),
        ["+ AT(clean): the partitioning of input 0 was 'forward' and is now 'rebalance'",
         "+ AT(count): the key selector of input 0 has changed",
         "+ watermark 'done' is newly declared",
         "+ watermark 'newest' is no longer declared"],
    ),
}  # fmt: skip

ALLOWED: dict[str, tuple[Program, Program]] = {
    "nothing": (PROGRAM, PROGRAM),
    "a sink added, before another": (PROGRAM, replace(PROGRAM, sinks=2)),
    "a name": (PROGRAM, replace(PROGRAM, clean_name="Wash")),
    "a function's code and class": (PROGRAM, replace(PROGRAM, clean=OtherClean(NEWEST.build()))),
    "a key selector's place": (PROGRAM, replace(PROGRAM, key=lambda tweet: tweet.topic)),
    "a state added": (PROGRAM, replace(PROGRAM, count=CountIn(VALUE("total", int)))),
    "limits of a barrier": (
        declaring(long_watermark().barrier(timeout=timedelta(minutes=1))),
        declaring(long_watermark().barrier(timeout=timedelta(minutes=2), max_records=5, when_exceeded="proceed")),
    ),
    "early firing": (
        replace(PROGRAM, count=reduced(WindowStrategy.tumbling(ms(10)), max)),
        replace(PROGRAM, count=reduced(WindowStrategy.tumbling(ms(10)).with_early_firing(ms(5), TimeType.EVENT), max)),
    ),
    "type and timeout of a temporal join": (
        replace(PROGRAM, join=join(pair, JoinMode.temporal())),
        replace(
            PROGRAM,
            join=join(pair, JoinMode.temporal(snapshot_timeout=ms(5)), JoinType.LEFT, is_deletion=bool),
        ),
    ),
    "type of a versioned join": (
        replace(PROGRAM, join=join(pair, JoinMode.versioned())),
        replace(PROGRAM, join=join(pair, JoinMode.versioned(), JoinType.LEFT, is_deletion=bool)),
    ),
    "bounds of an interval join": (
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(0), ms(1)))),
        replace(PROGRAM, join=join(pair, JoinMode.interval(ms(0), ms(2)))),
    ),
}


def in_words(sentence: str, before: ProgramDescription, after: ProgramDescription) -> str:
    """``sentence`` with AT(uid) replaced: the new location if there is one."""
    sign, text = sentence[:2], sentence[2:]
    if not text.startswith("AT("):
        return sentence
    uid, _, rest = text.removeprefix("AT(").partition(")")
    operators = {**before.operators, **after.operators}
    return f"{sign}operator {uid!r} (defined at {operators[uid].defined_at}){rest}"


@pytest.mark.parametrize("change", REFUSED)
def test_incompatible_change_is_described(change: str) -> None:
    before, after, sentences = REFUSED[change]
    old, new = before.described(), after.described()
    found = [f"{'+' if difference.carried else '-'} {difference.text}" for difference in differences(old, new)]
    assert found == [in_words(sentence, old, new) for sentence in sentences]


@pytest.mark.parametrize("change", ALLOWED)
def test_compatible_change_is_accepted(change: str) -> None:
    before, after = ALLOWED[change]
    assert differences(before.described(), after.described()) == []


def test_location_of_an_operator_is_its_defining_line() -> None:
    defined_at = PROGRAM.described().operators["join"].defined_at
    file, _, line = defined_at.rpartition(":")
    assert file == __file__
    with open(file) as lines:
        assert "connect_and_process" in lines.readlines()[int(line) - 1]


def test_moved_lines_are_no_difference() -> None:
    program = PROGRAM.described()
    moved = msgspec.json.decode(msgspec.json.encode(program).replace(b".py:", b".py:1"), type=ProgramDescription)
    assert moved != program
    assert moved.essence == program.essence
    assert differences(moved, program) == []


def test_key_selectors_are_not_compared_across_pythons() -> None:
    # The bytecode differs, so selectors cannot be compared. Their presence can.
    old = structs.replace(PROGRAM.described(), python="3.1")
    assert differences(old, replace(PROGRAM, key=author, keeps_key=author).described()) == []
    count = old.operators["count"]
    without_key = structs.replace(count, inputs=(structs.replace(count.inputs[0], key=None),))
    old = structs.replace(old, operators={**old.operators, "count": without_key})
    assert [difference.text.partition(": ")[2] for difference in differences(old, PROGRAM.described())] == [
        "the key selector of input 0 has changed"
    ]
    assert PROGRAM.described().python == PYTHON


def test_state_format_is_a_difference() -> None:
    now = PROGRAM.described()
    (difference,) = differences(structs.replace(now, format_version=1), now)
    assert difference.carried
    assert difference.text == f"it was written with state format 1, but this version of dsv2 writes {FORMAT_VERSION}"


def advice(before: Program, now: Program) -> list[str | None]:
    return [difference.advice for difference in differences(before.described(), now.described())]


def test_advice_says_how_else_to_continue() -> None:
    assert advice(COUNTING, replace(COUNTING, key=author)) == ["if all keys stay the same, give it version=1"]
    assert advice(PROGRAM, TWO_OUTPUTS) == ["with another uid the operator begins with empty state"]
    (of_type,) = advice(COUNTING, replace(COUNTING, count=CountIn(VALUE("total", str))))
    assert of_type is not None
    assert of_type.startswith("convert the stored values with a higher version and migrate=..., or")
    assert advice(COUNTING, replace(COUNTING, count=CountIn(ListStateDeclaration("total", int)))) == [
        "under another name the state begins empty"
    ]
    assert advice(PROGRAM, replace(PROGRAM, parallelism=1))[0] is None


def test_subject_is_what_has_changed() -> None:
    now = replace(declaring(DONE), parallelism=3, sources=("users", "tweets"), extra="audit")
    assert [difference.subject for difference in differences(PROGRAM.described(), now.described())] == [
        *("audit", "count", "join", "order of the sources", "done", "newest")
    ]


def dropping(before: Program) -> list[str]:
    found = differences(before.described(), PROGRAM.described())
    return [difference.subject for difference in found if difference.drops_state]


def test_removed_operators_drop_their_state() -> None:
    assert dropping(replace(PROGRAM, extra="audit")) == []
    assert dropping(replace(PROGRAM, extra="audit", audit=CountIn(VALUE("total", int)))) == ["audit"]
    old = PROGRAM.described()
    now = structs.replace(old, operators={uid: one for uid, one in old.operators.items() if uid != "users"})
    assert [difference.drops_state for difference in differences(old, now)] == [True]


# --- Sources with splits ----------------------------------------------------------------------------------------------


def of_spans(parallelism: int, source: BaseSource[Any] | None = None, *, keyed: bool = True) -> ProgramDescription:
    """Spans that are mapped in the same subtasks and counted in two others."""
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    items = env.from_source(source or Spans({})).with_uid("spans").with_parallelism(parallelism)
    mapped = items.map(str).with_uid("map").with_parallelism(parallelism)
    count = mapped.key_by(len).process(Count()) if keyed else mapped.process(Count())
    count.with_uid("count").to_sink(CollectSink())
    return reread(describe(env.build_plan("job")))


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("now", [1, 3, 200])
def test_parallelism_of_split_sources_may_change(now: int, keyed: bool) -> None:
    assert differences(of_spans(2, keyed=keyed), of_spans(now, keyed=keyed)) == []
    assert differences(of_spans(now, keyed=keyed), of_spans(2, keyed=keyed)) == []


def test_parallelism_of_counted_sources_may_not_change() -> None:
    found = differences(of_spans(2, CollectionSource([""])), of_spans(3, CollectionSource([""])))
    assert {difference.text.partition(": ")[2] for difference in found[:2]} == {"its parallelism was 2 and is now 3"}


# --- Operators that no user made --------------------------------------------------------------------------------------


class Sale(NamedTuple):
    product: str
    at: int


class Sales(NamedTuple):
    product: str
    n: int


class Checked(ParallelSink[Sales]):
    def check_record(self, record: Sales) -> None: ...

    def write(self, batch: SinkBatch[Sales]) -> None: ...


def time_of(sale: Sale) -> int:
    return sale.at


def is_new(sale: Sale) -> bool:
    return sale.at > 0


def sales(strategy: WindowStrategy, policy: ErrorPolicy | None = None, *, filtered: bool = False) -> ProgramDescription:
    env = ExecutionEnvironment.get_instance("local")
    timing = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    timed = env.from_collection([Sale("a", 1)]).with_uid("in").process(timing).with_uid("timed")
    if filtered:
        timed = timed.filter(is_new)
    windows = timed.key_by(attrgetter("product")).window(strategy)
    totals = windows.aggregate(Sales, Sale, product=a.Key(), n=a.Count()).with_uid("totals")
    sink = totals.to_sink(Checked())
    if policy is not None:
        sink.with_error_policy(policy)
    return describe(env.build_plan("job"))


SECOND = timedelta(seconds=1)
COMBINED = WindowStrategy.tumbling(SECOND)
LATE = WindowStrategy.tumbling(SECOND).with_allowed_lateness(SECOND)


@pytest.mark.parametrize(
    ("before", "now", "step"),
    [
        (sales(COMBINED), sales(LATE), "aggregate"),
        (sales(LATE), sales(COMBINED), "aggregate"),
        (sales(COMBINED), sales(COMBINED, ErrorPolicy().skip(ValueError)), "to_sink"),
        (sales(COMBINED, ErrorPolicy().skip(ValueError)), sales(COMBINED), "to_sink"),
    ],
    ids=["no longer combined", "combined", "policy of a sink added", "policy of a sink removed"],
)
def test_operators_that_no_user_made_are_named_by_the_users_step(
    before: ProgramDescription, now: ProgramDescription, step: str
) -> None:
    found = [str(difference) for difference in differences(before, now)]
    assert any(
        re.match(rf"a part of {step} \(defined at .*test_program_differences.py:\d+\) (was|is)", said) for said in found
    )
    assert not any(name in said for said in found for name in ("Combine", "SinkCheck", "with_uid"))


def test_only_an_operator_with_state_has_a_state_to_continue() -> None:
    (removed,) = [
        str(difference)
        for difference in differences(sales(LATE, filtered=True), sales(LATE))
        if "removed" in str(difference)
    ]
    assert removed.endswith("was removed, or has another uid")


class Days(WindowAssigner[Sale]):
    def assign_windows(self, record: Sale, timestamp: int) -> list[tuple[int, int]]:
        return [(0, 10)]


class Weeks(Days):
    """Another assigner."""


def in_windows(strategy: WindowStrategy) -> ProgramDescription:
    env = ExecutionEnvironment.get_instance("local")
    timing = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    timed = env.from_collection([Sale("a", 1)]).with_uid("in").process(timing).with_uid("timed")
    timed.key_by(attrgetter("product")).window(strategy).process(WindowRecorder()).with_uid("windows")
    return describe(env.build_plan("job"))


SESSION, RECORDS = WindowStrategy.session(SECOND), WindowStrategy.of_records(SECOND)


@pytest.mark.parametrize(
    ("before", "now", "is_refused"),
    [
        (SESSION, WindowStrategy.session(time_of), False),
        (SESSION, SESSION.with_allowed_lateness(SECOND), True),
        (SESSION, SESSION.with_timestamps("latest"), True),
        (COMBINED.with_timestamps("earliest"), COMBINED.with_timestamps("latest"), True),
        (COMBINED, COMBINED.with_evictor(CountEvictor(2)), True),
        (COMBINED.with_evictor(CountEvictor(2)), COMBINED.with_evictor(TimeEvictor(SECOND)), False),
        (WindowStrategy.assigned_by(Days()), WindowStrategy.assigned_by(Weeks()), False),
        (RECORDS, WindowStrategy.of_records(2 * SECOND), True),
    ],
)
def test_changed_windows(before: WindowStrategy, now: WindowStrategy, is_refused: bool) -> None:
    found = differences(in_windows(before), in_windows(now))
    assert any("windows" in str(difference) or "sessions" in str(difference) for difference in found) is is_refused
    assert bool(found) is is_refused
