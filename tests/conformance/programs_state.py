"""Programs for declared state of every kind, in every kind of function, with and without a time to live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from operator import mul
from typing import Any

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.state import AggregateFunction, RedistributionStrategy, StateDeclaration, StateDeclarations, StateTtl
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.conformance.functions import FEW, NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run
from tests.conformance.watermarks import SendAtEnd

# Flink's source of StatefulDataStreamV2ITCase is 1, 1, 1. Here other keys come in between.
REPEATED = [1, 2, 1, 3, 2, 1, 2, 2, 1]


@dataclass
class Sum:
    """An accumulator class of the program."""

    total: int = 0


class Summing(AggregateFunction[int, Sum, int]):
    """Modifies its accumulator in place."""

    def create_accumulator(self) -> Sum:
        return Sum()

    def add(self, value: int, accumulator: Sum) -> Sum:
        accumulator.total += value
        return accumulator

    def get_result(self, accumulator: Sum) -> int:
        return accumulator.total


def declarations(ttl: StateTtl | None) -> dict[str, Any]:
    """A declaration of every kind of keyed state."""
    return {
        "value": StateDeclarations.value_state("value", int, ttl=ttl),
        "default": StateDeclarations.value_state("default", int, 100, ttl=ttl),
        "list": StateDeclarations.list_state("list", int, ttl=ttl),
        "map": StateDeclarations.map_state("map", int, int, ttl=ttl),
        "reduced": StateDeclarations.reducing_state("reduced", int, mul, ttl=ttl),
        "total": StateDeclarations.aggregating_state("total", Sum, Summing(), ttl=ttl),
    }


def use_all(record: int, states: dict[str, Any]) -> tuple[Any, ...]:
    """Add ``record`` to each of the states and return their contents."""
    states["value"].update((states["value"].value() or 0) + record)
    states["default"].update(states["default"].value() + record)
    states["list"].add(record)
    states["map"].put(record, states["map"].get(record, 0) + 1)
    states["reduced"].add(record)
    states["total"].add(record)
    return (
        states["value"].value(),
        states["default"].value(),
        states["list"].get(),
        states["map"].items(),
        states["reduced"].get(),
        states["total"].get(),
    )


def used_all(records: list[int]) -> list[tuple[Any, ...]]:
    """The results of ``use_all`` for equal records of one key."""
    totals, products = list(accumulate(records)), list(accumulate(records, mul))
    return [
        (total, 100 + total, records[: n + 1], [(records[0], n + 1)], product, total)
        for n, (total, product) in enumerate(zip(totals, products, strict=True))
    ]


class All(OneInputStreamProcessFunction[int, Any]):
    """Accesses a state of every kind for each record."""

    def __init__(self, ttl: StateTtl | None = None) -> None:
        self.declarations = declarations(ttl)

    def uses_states(self) -> Collection[StateDeclaration]:
        return list(self.declarations.values())

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        states = {name: ctx.state_manager.get_state(declared) for name, declared in self.declarations.items()}
        output.collect((record, use_all(record, states)))


class AllInFields(All):
    """Keeps the handles in a field."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, Any] = {}

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if not self.states:
            self.states = {name: ctx.state_manager.get_state(declared) for name, declared in self.declarations.items()}
        output.collect((record, use_all(record, self.states)))


class KeyedState(Program):
    """Each key has its own state of every kind (Flink's StatefulDataStreamV2ITCase)."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(REPEATED).key_by(lambda number: number)
        p.collect(keyed.process(All()), "asked for")
        p.collect(keyed.process(AllInFields()), "kept")
        p.collect(keyed.process(All(StateTtl(timedelta(days=1)))), "expiring")

    def check(self, run: Run) -> None:
        expected = {key: [(key, said) for said in used_all([key] * times)] for key, times in Counter(REPEATED).items()}
        for name in ("asked for", "kept", "expiring"):
            assert run.grouped(lambda record: record[0], name) == expected


COUNT = StateDeclarations.value_state("count", int, default=0)


def counted(record: Any, ctx: Any) -> tuple[Any, int]:
    """``record`` and the number of records of its key so far."""
    count = ctx.state_manager.get_state(COUNT)
    count.update(count.value() + 1)
    return record, count.value()


class CountedOnce(OneInputStreamProcessFunction[Any, tuple[Any, int]]):
    """Numbers the records of each key."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect(counted(record, ctx))


class CountedTwice(TwoOutputStreamProcessFunction[int, tuple[int, int], tuple[int, int]]):
    """Numbers the records of each key, for both outputs."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(counted(record, ctx))
        second_output.collect(counted(record, ctx))


class CountedTogether(TwoInputNonBroadcastStreamProcessFunction[int, int, tuple[int, int]]):
    """Numbers the records of each key over both inputs."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(counted(record, ctx))

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(counted(record, ctx))


class StateOfEveryFunction(Program):
    """Keyed functions of all kinds have state, and two operators share none."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).key_by(mod3)
        p.collect(keyed.process(CountedOnce()), "one")
        both = keyed.process(CountedTwice())
        p.collect(both.first, "first")
        p.collect(both.second, "second")
        p.collect(keyed.connect_and_process(p.source(FEW).key_by(mod3), CountedTogether()), "together")
        still_keyed = keyed.process(CountedOnce(), lambda pair: mod3(pair[0]))
        p.collect(still_keyed.process(CountedOnce()), "behind")

    def check(self, run: Run) -> None:
        def counts(name: str, factor: int = 1) -> dict[int, list[int]]:
            groups = run.grouped(lambda pair: mod3(pair[0]), name)
            return {
                key: [count for _, count in sorted(pairs, key=lambda pair: pair[1])] for key, pairs in groups.items()
            }

        times = {key: sum(mod3(number) == key for number in NUMBERS) for key in range(3)}
        with_few = {key: n + sum(mod3(number) == key for number in FEW) for key, n in times.items()}
        assert counts("one") == {key: list(range(1, n + 1)) for key, n in times.items()}
        assert counts("first") == {key: list(range(1, 2 * n + 1, 2)) for key, n in times.items()}
        assert counts("second") == {key: list(range(2, 2 * n + 1, 2)) for key, n in times.items()}
        assert counts("together") == {key: list(range(1, n + 1)) for key, n in with_few.items()}
        behind = run.grouped(lambda record: mod3(record[0][0]), "behind")
        assert {key: [(first, second) for (_, first), second in records] for key, records in behind.items()} == {
            key: [(n, n) for n in range(1, times[key] + 1)] for key in times
        }


class Totals(OneInputStreamProcessFunction[int, Any]):
    """Adds up per key, and emits all sums at the end. Removes a key at 9 unless it remembers keys."""

    def __init__(self, remember_keys: bool) -> None:
        self.dsv2_remember_keys = remember_keys

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        counted(record, ctx)
        if record == 9:
            ctx.state_manager.get_state(COUNT).clear()

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(
            lambda output, partition: output.collect(
                (partition.state_manager.current_key, partition.state_manager.get_state(COUNT).value())
            )
        )


class StateOfAllKeys(Program):
    """``apply_to_all_partitions`` finds the state of every key, also of earlier micro-batches.

    In Flink's BATCH the state of all keys is gone at the end of input (H3).
    """

    def build(self, p: Pipeline) -> None:
        numbers = p.source([*NUMBERS, 9])
        p.collect(numbers.key_by(lambda number: number).process(Totals(remember_keys=True)), "all")
        p.collect(numbers.key_by(lambda number: number).process(Totals(remember_keys=False)), "with state")

    def check(self, run: Run) -> None:
        run.expect_all(*((number, 0 if number == 9 else 1) for number in NUMBERS), name="all")
        run.expect_all(*((number, 1) for number in NUMBERS if number != 9), name="with state")


SHARED = StateDeclarations.list_state_builder("shared", int).redistribute_by(RedistributionStrategy.SPLIT).build()


class Sharing(OneInputStreamProcessFunction[int, Any]):
    """Collects the records of the subtask under any key, and emits them at the end."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [SHARED]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(SHARED).add(record)

    def end_input(self, ctx: Any) -> None:
        subtask = ctx.task_info.index_of_this_subtask
        ctx.apply_to_all_partitions(
            lambda output, partition: output.collect((subtask, sorted(partition.state_manager.get_state(SHARED).get())))
        )


class SharedList(Program):
    """A redistributable list belongs to the subtask: keys share it, and it needs no key."""

    def build(self, p: Pipeline) -> None:
        numbers = p.source(NUMBERS)
        p.collect(numbers.process(Sharing()), "non-keyed")
        p.collect(numbers.key_by(mod3).process(Sharing()), "keyed")
        p.collect(numbers.global_().process(Sharing()), "global")

    def check(self, run: Run) -> None:
        lanes = [list(NUMBERS[lane :: run.parallelism]) for lane in range(run.parallelism)]
        run.expect_all(*enumerate(lanes), name="non-keyed")
        run.expect_all((0, list(NUMBERS)), name="global")
        by_subtask = run.grouped(lambda pair: pair[0], "keyed")
        assert sum(map(len, by_subtask.values())) == 3  # once for each key
        for said in by_subtask.values():
            assert all(numbers == said[0][1] for _, numbers in said)
            assert len({mod3(number) for number in said[0][1]}) == len(said)
        assert sorted(number for said in by_subtask.values() for number in said[0][1]) == list(NUMBERS)


RULES = StateDeclarations.map_state_builder("rules", int, str).build_broadcast()


class Ruled(TwoInputBroadcastStreamProcessFunction[int, int, Any]):
    """Stores rules in broadcast state as they arrive, and again at the end. Then it emits what each partition sees."""

    def __init__(self) -> None:
        self.rules: list[int] = []
        self.inputs_left = 2

    def uses_states(self) -> Collection[StateDeclaration]:
        return [RULES]

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(("record", record, len(ctx.state_manager.get_state(RULES))))

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        self.rules.append(record)
        ctx.apply_to_all_partitions(lambda output, partition: self._store(partition, [record]))

    def end_non_broadcast_input(self, ctx: Any) -> None:
        self._end(ctx)

    def end_broadcast_input(self, ctx: Any) -> None:
        self._end(ctx)

    def _end(self, ctx: Any) -> None:
        self.inputs_left -= 1
        if self.inputs_left == 0:
            # Rules that came before the first key could not be stored through a partition.
            ctx.apply_to_all_partitions(lambda output, partition: self._store(partition, self.rules))
            ctx.apply_to_all_partitions(self._tell)

    def _store(self, partition: Any, rules: list[int]) -> None:
        partition.state_manager.get_state(RULES).put_all({rule: str(rule) for rule in rules})

    def _tell(self, output: Any, partition: Any) -> None:
        rules = partition.state_manager.get_state(RULES)
        subtask = partition.task_info.index_of_this_subtask
        output.collect(("end", subtask, sorted(rules.items())))


class BroadcastRules(Program):
    """Broadcast state: one map per subtask for all of its keys, equal everywhere, written by the broadcast side."""

    def build(self, p: Pipeline) -> None:
        numbers, rules = p.source(NUMBERS), p.source(range(100, 105)).broadcast()
        p.collect(numbers.connect_and_process(rules, Ruled()), "non-keyed")
        p.collect(numbers.key_by(mod3).connect_and_process(rules, Ruled()), "keyed")

    def check(self, run: Run) -> None:
        rules = [(rule, str(rule)) for rule in range(100, 105)]
        for name in ("non-keyed", "keyed"):
            records = [record for record in run.out(name) if record[0] == "record"]
            assert sorted(number for _, number, _ in records) == list(NUMBERS)
            assert all(0 <= known <= len(rules) for _, _, known in records)
            ends = [record for record in run.out(name) if record[0] == "end"]
            assert all(seen == rules for _, _, seen in ends)
            if name == "keyed":
                assert len(ends) == 3
            else:
                assert sorted(subtask for _, subtask, _ in ends) == list(range(run.parallelism))


COMPLETE = new_builder("rules are complete").type_bool().combine_wait_for_all_channels(True).build()
WAITING = StateDeclarations.list_state("waiting", int)


class Joined(TwoInputBroadcastStreamProcessFunction[int, int, Any]):
    """Joins each record with its rule, in any order of arrival. Once all rules have arrived, it emits those of the
    subtask.

    The rule of 0 exists from the start.
    """

    def __init__(self) -> None:
        self.is_complete = False

    def uses_states(self) -> Collection[StateDeclaration]:
        return [RULES, WAITING]

    def open(self, ctx: Any) -> None:
        ctx.state_manager.get_state(RULES).put(0, "zero")

    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None:
        if self.is_complete:
            output.collect((record, ctx.state_manager.get_state(RULES).get(record)))
        else:
            ctx.state_manager.get_state(WAITING).add(record)

    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None:
        ctx.state_manager.get_state(RULES).put(record, str(record))

    def on_watermark_from_broadcast_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if watermark.identifier == COMPLETE.identifier:
            self.is_complete = True
            rules = sorted(ctx.state_manager.get_state(RULES).items())
            output.collect(("all", ctx.task_info.index_of_this_subtask, rules))
            ctx.apply_to_all_partitions(self._join)
        return WatermarkHandlingResult.PEEK

    def _join(self, output: Any, ctx: Any) -> None:
        rules, waiting = ctx.state_manager.get_state(RULES), ctx.state_manager.get_state(WAITING)
        for record in waiting.get():
            output.collect((record, rules.get(record)))
        waiting.clear()


class RulesBeforeKeys(Program):
    """Broadcast records that arrive before the first key of a subtask are in its broadcast state.

    In Flink they are lost: the broadcast side accesses state through the keys that were seen.
    """

    def build(self, p: Pipeline) -> None:
        rules = p.source(range(1, 12)).process(SendAtEnd(COMPLETE, True)).broadcast()
        for name, numbers in (("keys", NUMBERS), ("no keys", [])):
            keyed = p.source(numbers).key_by(lambda number: number)
            p.collect(keyed.connect_and_process(rules, Joined()), name)

    def check(self, run: Run) -> None:
        rules = [(0, "zero"), *((number, str(number)) for number in range(1, 12))]
        seen = [("all", subtask, rules) for subtask in range(run.parallelism)]
        run.expect_all(*seen, name="no keys")
        run.expect_all(*seen, *rules, name="keys")


PROGRAMS: tuple[Program, ...] = (
    KeyedState(),
    StateOfEveryFunction(),
    StateOfAllKeys(),
    SharedList(),
    BroadcastRules(),
    RulesBeforeKeys(),
)
