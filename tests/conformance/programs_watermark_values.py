"""Programs for watermarks with values of every type, their combinations, and handlers of single watermarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from dsv2 import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder, on
from dsv2.functions import OneInputStreamProcessFunction, TwoOutputStreamProcessFunction
from dsv2.watermark import NumericWatermarkCombinationFunction, VectorClock
from tests.conformance.functions import NUMBERS, PassEither, is_of_others, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import PEEK, Sender, among


@dataclass(frozen=True, order=True)
class Version:
    """An ordered value of a class."""

    major: int
    tag: str


def longer(one: str, other: str) -> str:
    """The longer string; of two with the same length, the later one in the alphabet."""
    return max(one, other, key=lambda text: (len(text), text))


def median(values: Sequence[Any]) -> Any:
    return sorted(values)[(len(values) - 1) // 2]


def least_entries(values: Sequence[Any]) -> VectorClock:
    return VectorClock.merged(values, min)


@dataclass(frozen=True)
class Case:
    """A declaration, the values that are sent, and the combination by its definition."""

    declaration: WatermarkDeclaration
    value_of: Callable[[int], Any]
    fold: Callable[[Sequence[Any]], Any]


def case(declaration: WatermarkDeclaration, value_of: Callable[[int], Any], fold: Callable[[Any], Any]) -> Case:
    return Case(declaration, value_of, fold)


def version_of(number: int) -> Version:
    return Version(number % 4, "ab"[number % 2])


def tags_of(number: int) -> frozenset[str]:
    return frozenset("abcd"[: number % 5])


def clock_of(number: int) -> VectorClock:
    return VectorClock({f"p{number % 3}": number, "all": number // 2})


CASES = (
    case(new_builder("v-float").type_float().build(), lambda number: number % 5 / 4, min),
    case(new_builder("v-str").type_str().combine_function_max().build(), "{:b}".format, max),
    case(new_builder("v-class").type_of(Version).combine_function_min().build(), version_of, min),
    case(
        new_builder("v-union").type_set(str).combine_wait_for_all_channels(True).build(),
        tags_of,
        lambda sets: frozenset().union(*sets),
    ),
    case(
        new_builder("v-common").type_set(str).combine_function_intersection().build(),
        tags_of,
        lambda sets: frozenset("abcd").intersection(*sets),
    ),
    case(new_builder("v-clock").type_vector().build(), clock_of, lambda values: VectorClock.merged(values, max)),
    case(new_builder("v-clock-min").type_vector().combine_function_min().build(), clock_of, least_entries),
    case(
        new_builder("v-sum").type_float().combine_function_sum().combine_wait_for_all_channels(True).build(),
        lambda number: number / 2,
        sum,
    ),
    case(new_builder("v-total").type_long().combine_function_sum().build(), lambda number: number, sum),
    case(new_builder("v-count").type_long().combine_function_count().build(), lambda number: 2**62, len),
    case(new_builder("v-median").type_long().combine_function_quantile(0.5).build(), lambda number: number % 7, median),
    case(
        new_builder("v-quorum").type_bool().combine_function_at_least(2).build(),
        lambda number: number % 3 > 0,
        lambda values: sum(values) >= 2 if len(values) >= 2 else None,
    ),
    case(
        new_builder("v-longer").type_str().combine(longer, samples=["", "a", "b", "ab"], neutral="").build(),
        "{:b}".format,
        lambda texts: max(texts, key=lambda text: (len(text), text)),
    ),
    case(
        new_builder("v-rounds").type_set(int).combine_wait_for_all_channels(True).aligned().build(),
        lambda number: frozenset({number}),
        lambda sets: frozenset().union(*sets),
    ),
)


class Logs(TwoOutputStreamProcessFunction[Any, Any, tuple[int, str, Any]]):
    """Forwards records to its first output, and logs watermarks to its second, as (subtask, callback, value)."""

    def process_record(self, record: Any, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)

    def on_watermark(
        self, watermark: Watermark, first_output: Any, second_output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        if not is_of_others(watermark):
            second_output.collect((ctx.task_info.index_of_this_subtask, watermark.identifier, watermark.value))
        return PEEK


def seen_by(run: Run, name: str, subtask: int) -> list[Any]:
    return [value for index, _, value in run.out(name) if index == subtask]


def legal_results(fold: Callable[[Sequence[Any]], Any], channels: Iterable[Sequence[Any]]) -> set[Any]:
    """The combinations of at most one value of each channel, and of at least one."""
    choices = product(*[[(), *((value,) for value in dict.fromkeys(channel))] for channel in channels])
    chosen = [[value for part in choice for value in part] for choice in choices]
    return {fold(values) for values in chosen if values}


@dataclass(frozen=True)
class OfValues(Program):
    """Values of one type over several channels, and over a second exchange if they are forwarded."""

    case: Case

    @property
    def name(self) -> str:
        return self.case.declaration.identifier

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS).process(Sender(self.case.declaration, self.case.value_of))
        first = sender.shuffle().process(Logs())
        p.collect(first.second, "first")
        p.collect(first.first.key_by(mod3).process(Logs()).second, "second")

    def check(self, run: Run) -> None:
        p, case = run.parallelism, self.case
        policy = case.declaration.combination_policy
        sent = [[case.value_of(number) for number in NUMBERS[lane::p]] for lane in range(p)]
        legal = legal_results(case.fold, sent)
        received = [seen_by(run, "first", subtask) for subtask in range(p)]
        for values in received:
            assert set(values) <= legal, (self.name, values)
            assert policy.aligned or all(one != other for one, other in pairwise(values))
            if policy.combine_wait_for_all_channels:
                assert values[0] in {case.fold(choice) for choice in product(*sent)}
        if p == 1:
            single = [case.fold([value]) for value in sent[0]]
            changes = [value for i, value in enumerate(single) if i == 0 or value != single[i - 1]]
            assert received[0] == (changes if single[0] is not None else [])
        elif policy.aligned:
            assert received == [[frozenset(NUMBERS[at : at + p]) for at in range(0, len(NUMBERS), p)]] * p
        behind = [seen_by(run, "second", subtask) for subtask in range(p)]
        if case.declaration.default_handling_strategy.value == "forward":
            again = legal_results(case.fold, received)
            assert all(values and set(values) <= again for values in behind)
        else:
            assert behind == [[]] * p


class Handles(OneInputStreamProcessFunction[Any, tuple[int, str, Any]]):
    """Handlers of two of the watermarks that arrive."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...

    @on(CASES[0].declaration)
    def of_float(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect((ctx.task_info.index_of_this_subtask, "of_float", watermark.value))
        return PEEK

    @on(CASES[4].declaration)
    def of_tags(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect((ctx.task_info.index_of_this_subtask, "of_tags", watermark.value))
        return PEEK

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if not is_of_others(watermark):
            output.collect((ctx.task_info.index_of_this_subtask, watermark.identifier, watermark.value))
        return PEEK


class SendsThree(OneInputStreamProcessFunction[int, int]):
    """Sends three watermarks after each record."""

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [CASES[number].declaration for number in (0, 1, 4)]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for number in (0, 1, 4):
            one = CASES[number]
            ctx.non_partitioned_context.watermark_manager.emit_watermark(
                one.declaration.new_watermark(one.value_of(record))
            )


class Handlers(Program):
    """Each watermark reaches its own handler, or else ``on_watermark``."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(SendsThree()).process(Handles()))

    def check(self, run: Run) -> None:
        p = run.parallelism
        for lane in range(p):
            seen = [(name, value) for index, name, value in run.out() if index == lane]
            for name, number in (("of_float", 0), ("of_tags", 4), ("v-str", 1)):
                sent = [CASES[number].value_of(record) for record in NUMBERS[lane::p]]
                changes = [value for i, value in enumerate(sent) if i == 0 or value != sent[i - 1]]
                assert [value for called, value in seen if called == name] == changes


LATEST = new_builder("v-latest").type_str().build()
JUMPS = new_builder("v-jumps").type_long().deliver_when(lambda new, old: old is None or new >= old + 4).build()
ARRIVALS = new_builder("v-arrivals").type_long().combine_function_max().deliver_on_arrival().build()


@dataclass(frozen=True)
class Delivered(Program):
    """Values of one channel: the last one, those that a predicate selects, and every arrival."""

    declaration: WatermarkDeclaration
    value_of: Callable[[int], Any]
    expected: Sequence[Any]

    @property
    def name(self) -> str:
        return self.declaration.identifier

    def build(self, p: Pipeline) -> None:
        sender = p.source(NUMBERS, 1).process(Sender(self.declaration, self.value_of)).with_parallelism(1)
        p.collect(sender.shuffle().process(Logs()).second)

    def check(self, run: Run) -> None:
        assert [seen_by(run, "out", subtask) for subtask in range(run.parallelism)] == [self.expected] * run.parallelism


ACROSS = (
    new_builder("v-across")
    .type_long()
    .combine_function_min()
    .combine_across_inputs(True, NumericWatermarkCombinationFunction.MAX)
    .build()
)


class AcrossInputs(Program):
    """MIN over the channels of each input, and MAX over the inputs."""

    def build(self, p: Pipeline) -> None:
        left = p.source(NUMBERS, 1).process(Sender(ACROSS, among(5, 6))).with_parallelism(1)
        right = p.source(NUMBERS, 1).process(Sender(ACROSS, among(1, 2))).with_parallelism(1)
        both = left.connect_and_process(right, PassEither()).with_parallelism(1)
        p.collect(both.process(Logs()).with_parallelism(1).second)

    def check(self, run: Run) -> None:
        seen = seen_by(run, "out", 0)
        assert set(seen) <= {1, 2, 5, 6}
        assert 6 in seen
        if 5 in seen:  # the left side has ended only after 6
            assert not {1, 2} & set(seen[seen.index(5) : seen.index(6)])


PROGRAMS: tuple[Program, ...] = (
    *map(OfValues, CASES),
    Handlers(),
    Delivered(LATEST, lambda number: "ab"[number // 2 % 2], ["a", "b"] * 3),
    Delivered(JUMPS, lambda number: number, [0, 4, 8]),
    Delivered(ARRIVALS, lambda number: 7, [7] * len(NUMBERS)),
    AcrossInputs(),
)
