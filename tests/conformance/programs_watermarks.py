"""Programs for generalized watermarks (FLIP-467)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.watermark import (
    LongWatermarkDeclaration,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from tests.conformance.functions import FEW, NUMBERS, is_of_others, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import (
    FROM_FIRST,
    FROM_SECOND,
    PEEK,
    POLL,
    Recorder,
    Sender,
    SidesRecorder,
    among,
    check_received,
    send,
    signals,
    values,
)
from tests.oracles.channels import Rule, Signal, is_legal


@dataclass(frozen=True)
class Combined(Program):
    """Values that go up and down, over several channels and a second exchange."""

    function: str
    wait: bool
    aligned: bool = False

    @property
    def name(self) -> str:
        return f"{self.function}{'-wait' * self.wait}{'-aligned' * self.aligned}"

    @property
    def declaration(self) -> WatermarkDeclaration:
        start = new_builder(self.name)
        typed = start.type_long() if self.function in ("min", "max") else start.type_bool()
        function = getattr(typed, f"combine_function_{self.function}")()
        built: WatermarkDeclaration = function.combine_wait_for_all_channels(self.wait).aligned(self.aligned).build()
        return built

    def value_of(self, number: int) -> int:
        """5, 5, 7, 3 in the first channel, and other values in the others."""
        if self.function in ("and", "or"):
            return number // 4 % 2 == 0
        return (5, 5, 7, 3, 8, 8)[number // 4 + number % 4]

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Sender(self.declaration, self.value_of))
        first = sender.shuffle().process(Recorder())
        p.collect(first.second, "first")
        p.collect(first.first.key_by(mod3).process(Recorder()).second, "second")

    def check(self, run: Run) -> None:
        p, bound = run.parallelism, isinstance(self.declaration, LongWatermarkDeclaration)
        sent = [[self.value_of(number) for number in NUMBERS[lane::p]] for lane in range(p)]
        check_received(run, self.declaration, "first", sent, p)
        check_received(run, self.declaration, "second", [values(run, "first", lane) for lane in range(p)], p)
        assert all(isinstance(value, int if bound else bool) for value in values(run, "second", 0))
        for name in ("first", "second"):
            assert sorted(seen for _, seen in run.out(name) if isinstance(seen, int)) == list(NUMBERS)
            if p == 1 and self.aligned:
                assert values(run, name, 0) == sent[0]  # every round is delivered
            elif p == 1:
                changes = [value for i, value in enumerate(sent[0]) if i == 0 or value != sent[0][i - 1]]
                assert values(run, name, 0) == changes


@dataclass(frozen=True)
class WatermarkITCase(Program):
    """Flink's ``WatermarkITCase``: two subtasks send one watermark each, before all records.

    Flink's test unblocks the first subtask before the second. Here the order is open.
    """

    case: str
    declaration: WatermarkDeclaration
    sent: tuple[int, int]
    answer: WatermarkHandlingResult = PEEK
    swallowed: bool = False

    @property
    def name(self) -> str:
        return f"WatermarkITCase-{self.case}"

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(OpenSender(self.declaration, self.sent)).with_parallelism(2)
        third = sender.shuffle().process(Recorder(self.answer)).with_parallelism(2)
        fourth = third.first.shuffle().process(Recorder()).with_parallelism(2)
        p.collect(third.second, "third")
        p.collect(fourth.second, "fourth")

    def check(self, run: Run) -> None:
        check_received(run, self.declaration, "third", [[value] for value in self.sent], 2)
        if self.swallowed:
            assert [values(run, "fourth", subtask) for subtask in (0, 1)] == [[], []]
        else:
            check_received(run, self.declaration, "fourth", [values(run, "third", s) for s in (0, 1)], 2)
        for name in ("third", "fourth"):
            assert sorted(seen for _, seen in run.out(name) if isinstance(seen, int)) == list(NUMBERS)
        if self.declaration.combination_policy.aligned:
            for subtask in (0, 1):
                seen = [seen for index, seen in run.out("third") if index == subtask]
                assert [isinstance(element, int) for element in seen].index(False) == 0, "a record was let through"
                assert values(run, "third", subtask) == [all(self.sent)]


class OpenSender(OneInputStreamProcessFunction[int, int]):
    """Sends one watermark, ``sent[subtask]``, when it is opened."""

    def __init__(self, declaration: WatermarkDeclaration, sent: tuple[int, ...]) -> None:
        self.declaration = declaration
        self.sent = sent

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [self.declaration]

    def open(self, ctx: Any) -> None:
        send(ctx, self.declaration, self.sent[ctx.task_info.index_of_this_subtask])

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)


@dataclass(frozen=True)
class Answered(Program):
    """PEEK or POLL combined with FORWARD or IGNORE, as in Flink: only PEEK with FORWARD forwards a watermark.

    It always takes the first hop.
    """

    answer: WatermarkHandlingResult
    ignore: bool

    @property
    def name(self) -> str:
        return f"{self.answer.value}-{'IGNORE' if self.ignore else 'FORWARD'}"

    @property
    def declaration(self) -> LongWatermarkDeclaration:
        builder = new_builder(self.name).type_long()
        return (builder.default_handling_strategy_ignore() if self.ignore else builder).build()

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Sender(self.declaration, lambda number: number if number < 6 else None))
        chained = sender.process(Recorder(self.answer))
        exchanged = sender.shuffle().process(Recorder(self.answer))
        p.collect(chained.second, "chained")
        p.collect(exchanged.second, "exchanged")
        p.collect(chained.first.process(Recorder()).second, "behind-chained")
        p.collect(exchanged.first.shuffle().process(Recorder()).second, "behind-exchanged")

    def check(self, run: Run) -> None:
        lets_on = self.answer is PEEK and not self.ignore
        p = run.parallelism
        sent = [list(range(6)[lane::p]) for lane in range(p)]
        assert [values(run, "chained", lane) for lane in range(p)] == sent
        check_received(run, self.declaration, "exchanged", sent, p)
        if lets_on:
            assert [values(run, "behind-chained", lane) for lane in range(p)] == sent
            received = [values(run, "exchanged", lane) for lane in range(p)]
            check_received(run, self.declaration, "behind-exchanged", received, p)
        else:
            for name in ("behind-chained", "behind-exchanged"):
                assert all(values(run, name, lane) == [] for lane in range(p))


EVERYWHERE = new_builder("everywhere").type_long().combine_function_max().build()
RELAYED = new_builder("relayed").type_long().combine_function_max().build()


class Everywhere(TwoOutputStreamProcessFunction[int, Any, Any]):
    """Emits a watermark in every callback that may, between records on both outputs."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [EVERYWHERE]

    def open(self, ctx: Any) -> None:
        self._emit(ctx, 1000)

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        self._emit(ctx.non_partitioned_context, 2000 + record)
        second_output.collect(record)

    def on_watermark(
        self, watermark: Watermark, first_output: Any, second_output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        if watermark.identifier == EVERYWHERE.identifier or is_of_others(watermark):
            return PEEK
        first_output.collect(watermark.value)  # before the watermark is forwarded
        self._emit(ctx, watermark.value + 1000)
        return PEEK

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda first, second, partition: first.collect(-1))
        self._emit(ctx, 9000)
        ctx.apply_to_all_partitions(lambda first, second, partition: second.collect(-2))

    def _emit(self, ctx: Any, value: int) -> None:
        send(ctx, EVERYWHERE, value)


class EmittedEverywhere(Program):
    """In ``open``, with a record, on a watermark and at the end: on both outputs, at the right place between the
    records."""

    def build(self, p: Pipeline) -> None:
        numbers = p.source(NUMBERS, 1).filter(lambda number: number in (1, 2)).with_parallelism(1)
        sender = numbers.process(Sender(RELAYED, lambda number: 3000 + number if number == 2 else None))
        both = sender.with_parallelism(1).process(Everywhere()).with_parallelism(1)
        p.collect(both.first.process(Recorder()).with_parallelism(1).second, "first")
        p.collect(both.second.shuffle().process(Recorder()).with_parallelism(1).second, "second")

    def check(self, run: Run) -> None:
        def seen(name: str) -> list[Any]:
            return [what if isinstance(what, int) else (what.identifier, what.value) for _, what in run.out(name)]

        at, relayed = EVERYWHERE.identifier, RELAYED.identifier
        start = [(at, 1000)]
        assert seen("first") == [
            *(*start, 1, (at, 2001), 2, (at, 2002)),
            *(3002, (at, 4002), (relayed, 3002), -1, (at, 9000)),
        ]
        assert seen("second") == [
            *(*start, (at, 2001), 1, (at, 2002), 2),
            *((at, 4002), (relayed, 3002), (at, 9000), -2),
        ]


class TwoSided(SidesRecorder, TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]):
    """With two inputs."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...

    on_watermark_from_first_input = FROM_FIRST
    on_watermark_from_second_input = FROM_SECOND


class BroadcastSided(SidesRecorder, TwoInputBroadcastStreamProcessFunction[Any, Any, Any]):
    """With a broadcast input."""

    def process_record_from_non_broadcast_input(self, record: Any, output: Any, ctx: Any) -> None: ...
    def process_record_from_broadcast_input(self, record: Any, ctx: Any) -> None: ...

    on_watermark_from_non_broadcast_input = FROM_FIRST
    on_watermark_from_broadcast_input = FROM_SECOND


@dataclass(frozen=True)
class TwoInputs(Program):
    """Inputs with 5, 6 and 1, 2: separate callbacks, forwarded separately, or combined over both inputs if declared.

    Flink only does the former: its receivers see a value that jumps between 5, 6 and 1, 2.
    """

    across: bool
    broadcast: bool = False

    @property
    def name(self) -> str:
        kind = "Broadcast" if self.broadcast else "Two"
        return f"{kind}Inputs{'Across' if self.across else 'Apart'}"

    @property
    def declaration(self) -> LongWatermarkDeclaration:
        return new_builder(self.name).type_long().combine_function_min().combine_across_inputs(self.across).build()

    def build(self, p: Pipeline) -> None:
        left = p.source(NUMBERS, 1).process(Sender(self.declaration, among(5, 6))).with_parallelism(1)
        right: Any = p.source(NUMBERS, 1).process(Sender(self.declaration, among(1, 2))).with_parallelism(1)
        if self.broadcast:
            both = left.connect_and_process(right.broadcast(), BroadcastSided())
        else:
            both = left.connect_and_process(right, TwoSided())
        p.collect(both, "both")
        # One subtask. Each of its channels has the output of one subtask of ``both``.
        p.collect(both.global_().process(Recorder()).second, "behind")

    def check(self, run: Run) -> None:
        for subtask in range(run.parallelism):
            seen = [(side, value) for index, side, value in run.out("both") if index == subtask]
            assert [value for side, value in seen if side == 1] == [5, 6]
            assert [value for side, value in seen if side == 2] == [1, 2]
        if run.parallelism > 1:
            return
        behind = values(run, "behind", 0)
        if not self.across:
            sent = [value for _, _, value in run.out("both")]
            assert behind == [value for i, value in enumerate(sent) if i == 0 or value != sent[i - 1]]
        else:
            rules = {self.declaration.identifier: Rule.of(self.declaration)}
            inputs = [[Signal(self.name, value) for value in side] for side in ((5, 6), (1, 2))]
            assert is_legal(rules, inputs, signals(run, "behind", 0)), behind


class HeldForLong(Program):
    """A channel that is ahead is held back over micro-batches until the slowest has sent its watermark or ended."""

    DECLARATION = new_builder("held").type_long().combine_wait_for_all_channels(True).aligned().build()

    def build(self, p: Pipeline) -> None:
        lanes = p.parallelism
        last = len(NUMBERS) - lanes  # the first subtask sends with every record, the others with their last
        sender = Sender(self.DECLARATION, lambda n: n if n % lanes == 0 or n >= last else None)
        p.collect(p.source(NUMBERS).process(sender).shuffle().process(Recorder()).second)

    def check(self, run: Run) -> None:
        p = run.parallelism
        ahead = list(NUMBERS[::p])
        for subtask in range(p):
            seen = [seen for index, seen in run.out() if index == subtask]
            # The first round has the minimum of the first watermarks. Then only the first subtask is left.
            assert values(run, "out", subtask) == ahead
            for lane in range(p):
                numbers = [element for element in seen if isinstance(element, int) and element % p == lane]
                assert numbers == sorted(numbers)
            first_round = next(place for place, element in enumerate(seen) if not isinstance(element, int))
            early = [element for element in seen[:first_round] if element % p == 0]
            assert set(early) <= {0}
        assert sorted(seen for _, seen in run.out() if isinstance(seen, int)) == list(NUMBERS)


class ManyRounds(Program):
    """Hundreds of aligned watermarks meet in one micro-batch. Records never pass them."""

    EACH = 100
    DECLARATION = new_builder("rounds").type_long().combine_wait_for_all_channels(True).aligned().build()

    def build(self, p: Pipeline) -> None:
        def rounds(number: int) -> range:
            first = number // parallelism * each
            return range(first, first + each)

        parallelism, each = p.parallelism, self.EACH
        sender = p.source(NUMBERS).flat_map(rounds).process(Sender(self.DECLARATION, lambda number: number))
        p.collect(sender.shuffle().process(Recorder()).second)

    def check(self, run: Run) -> None:
        rounds = len(NUMBERS) * self.EACH // run.parallelism
        for subtask in range(run.parallelism):
            seen = [seen for index, seen in run.out() if index == subtask]
            assert sum(not isinstance(element, int) for element in seen) == rounds
            passed = 0
            for element in seen:
                if isinstance(element, int):
                    assert element == passed  # a record of a later round waits
                else:
                    passed += 1


class OnEveryEdge(Program):
    """A watermark reaches every downstream subtask over every kind of edge. In Flink's BATCH it reaches none."""

    DECLARATION = new_builder("edges").type_long().combine_function_max().combine_wait_for_all_channels(True).build()

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS, 1).process(Sender(self.DECLARATION, among(4))).with_parallelism(1)
        p.collect(sender.process(Recorder()).with_parallelism(1).second, "forward")
        p.collect(sender.shuffle().process(Recorder()).second, "shuffle")
        p.collect(sender.key_by(mod3).process(Recorder()).second, "key_by")
        p.collect(sender.global_().process(Recorder()).second, "global")
        p.collect(p.source(NUMBERS).connect_and_process(sender.broadcast(), BroadcastSided()), "broadcast")

    def check(self, run: Run) -> None:
        p = run.parallelism
        for name, subtasks in (("forward", 1), ("shuffle", p), ("key_by", p), ("global", 1)):
            assert [values(run, name, subtask) for subtask in range(subtasks)] == [[4]] * subtasks
        run.expect_all(*((subtask, 2, 4) for subtask in range(p)), name="broadcast")


class DeclaredElsewhere(Program):
    """A declaration applies to the whole job, as in Flink: a function may emit what only a later one declares (E3b)."""

    DECLARATION = new_builder("elsewhere").type_bool().combine_function_or().build()

    def build(self, p: Pipeline) -> None:
        def emit(number: int, output: Any, ctx: Any) -> None:
            send(ctx.non_partitioned_context, self.DECLARATION, True)
            output.collect(number)

        stream = p.source(FEW, 1).process(emit).with_parallelism(1)
        stream = stream.shuffle().process(Sender(self.DECLARATION, lambda number: None))
        p.collect(stream.global_().process(Recorder()).second)

    def check(self, run: Run) -> None:
        assert values(run, "out", 0) == [True]


LONG_MAX = new_builder("itcase-max").type_long().combine_function_max()
PROGRAMS: tuple[Program, ...] = (
    *(Combined(function, wait) for function in ("min", "max", "and", "or") for wait in (False, True)),
    *(Combined(function, True, aligned=True) for function in ("min", "max", "and", "or")),
    WatermarkITCase(
        "aligned",
        new_builder("it-aligned").type_bool().combine_wait_for_all_channels(True).aligned().build(),
        (True, True),
    ),
    # Flink delivers the last value to arrive here, which may be true.
    WatermarkITCase(
        "aligned-mixed",
        new_builder("it-mixed").type_bool().combine_wait_for_all_channels(True).aligned().build(),
        (False, True),
    ),
    WatermarkITCase("max", new_builder("it-max").type_long().combine_function_max().build(), (1, 2)),
    WatermarkITCase("min", new_builder("it-min").type_long().combine_function_min().build(), (1, 2)),
    WatermarkITCase("and", new_builder("it-and").type_bool().combine_function_and().build(), (False, True)),
    WatermarkITCase("or", new_builder("it-or").type_bool().combine_function_or().build(), (False, True)),
    WatermarkITCase(
        "wait",
        new_builder("it-wait").type_long().combine_function_max().combine_wait_for_all_channels(True).build(),
        (1, 2),
    ),
    WatermarkITCase(
        "poll", new_builder("it-poll").type_long().combine_function_max().build(), (1, 2), answer=POLL, swallowed=True
    ),
    WatermarkITCase(
        "ignore",
        new_builder("it-ignore").type_long().combine_function_max().default_handling_strategy_ignore().build(),
        (1, 2),
        swallowed=True,
    ),
    *(Answered(answer, ignore) for answer in (PEEK, POLL) for ignore in (False, True)),
    EmittedEverywhere(),
    *(TwoInputs(across, broadcast) for across in (False, True) for broadcast in (False, True)),
    HeldForLong(),
    ManyRounds(),
    OnEveryEdge(),
    DeclaredElsewhere(),
)
