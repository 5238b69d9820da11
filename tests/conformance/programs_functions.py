"""Programs for ``process`` and ``connect_and_process``, for every kind of stream and pair of kinds."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal

from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from tests.conformance.functions import (
    NUMBERS,
    Located,
    Merge,
    Pass,
    PassTwo,
    Rules,
    Seen,
    Split,
    check_keys,
    check_rules,
    itself,
    key_of,
    mod3,
    value_of,
)
from tests.conformance.harness import Pipeline, Program, Run

EVEN = [number for number in NUMBERS if number % 2 == 0]
ODD_OR_ZERO = [number for number in NUMBERS if number % 2 == 1 or number == 0]


class NonKeyedProcess(Program):
    """Each subtask reads its own share, in order."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).process(Located()))

    def check(self, run: Run) -> None:
        run.expect(*(Seen(number, number % run.parallelism) for number in NUMBERS))
        run.expect_channel_order(value_of)


class NonKeyedTwoOutputs(Program):
    """Records go to the output to which they were emitted."""

    def build(self, p: Pipeline) -> None:
        both = p.source(NUMBERS).process(Split())
        p.collect(both.first, "first")
        p.collect(both.second, "second")
        p.collect(both.second.shuffle().map(value_of), "behind")

    def check(self, run: Run) -> None:
        run.expect(*(Seen(number, number % run.parallelism) for number in EVEN), name="first")
        run.expect(*(Seen(number, number % run.parallelism) for number in ODD_OR_ZERO), name="second")
        run.expect(*ODD_OR_ZERO, name="behind")


class KeyedProcess(Program):
    """A key is in one subtask only and is the current key there. In each channel its records keep their order."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).key_by(mod3).process(Located(keyed=True)))

    def check(self, run: Run) -> None:
        assert sorted(map(value_of, run.out())) == list(NUMBERS)
        check_keys(run.parallelism, run.out())
        for key in range(3):
            for lane in range(run.parallelism):
                numbers = [r.value for r in run.out() if r.key == key and r.value % run.parallelism == lane]
                assert numbers == sorted(numbers)


class KeyPreservingProcess(Program):
    """With a key selector for the output the stream stays keyed, in the same subtask."""

    def build(self, p: Pipeline) -> None:
        kept = p.source(NUMBERS).key_by(mod3).process(Located(keyed=True), key_of)
        p.collect(kept.process(Located(keyed=True)))

    def check(self, run: Run) -> None:
        assert sorted(record.value.value for record in run.out()) == list(NUMBERS)
        assert all((record.subtask, record.key) == (record.value.subtask, record.value.key) for record in run.out())
        check_keys(run.parallelism, [record.value for record in run.out()])


class KeyedTwoOutputs(Program):
    """Two outputs of a keyed function: not keyed, or both keyed as before."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).key_by(mod3)
        lost = keyed.process(Split(keyed=True))
        kept = keyed.process(Split(keyed=True), first_key_selector=key_of, second_key_selector=key_of)
        p.collect(lost.first, "first")
        p.collect(lost.second, "second")
        p.collect(kept.first.process(Located(keyed=True)), "kept-first")
        # Equal keys of two streams that stayed keyed still meet.
        p.collect(kept.first.connect_and_process(kept.second, Merge(keyed=True)), "joined")

    def check(self, run: Run) -> None:
        for name, expected in (("first", EVEN), ("second", ODD_OR_ZERO)):
            assert sorted(map(value_of, run.out(name))) == expected
            check_keys(run.parallelism, run.out(name))
        assert sorted(record.value.value for record in run.out("kept-first")) == EVEN
        joined: list[Seen] = run.out("joined")
        assert sorted(r.value.value for r in joined if r.input == 1) == EVEN
        assert sorted(r.value.value for r in joined if r.input == 2) == ODD_OR_ZERO
        assert all((record.subtask, record.key) == (record.value.subtask, record.value.key) for record in joined)


class GlobalProcess(Program):
    """One subtask sees everything."""

    def build(self, p: Pipeline) -> None:
        everything = p.source(NUMBERS).global_()
        p.collect(everything.process(Located()), "one")
        both = everything.process(Split())
        p.collect(both.first, "first")
        p.collect(both.second.process(Located()), "second")

    def check(self, run: Run) -> None:
        run.expect(*(Seen(number, 0) for number in NUMBERS), name="one")
        run.expect(*(Seen(number, 0) for number in EVEN), name="first")
        run.expect(*(Seen(Seen(number, 0), 0) for number in ODD_OR_ZERO), name="second")


@dataclass(frozen=True)
class Connected(Program):
    """Two inputs without broadcast: each record arrives on its own input, and each channel keeps its order."""

    kind: Literal["non-keyed", "keyed", "keyed-kept", "global"]

    @property
    def name(self) -> str:
        return f"{self.kind}×{self.kind}"

    def build(self, p: Pipeline) -> None:
        first: Any = p.source(NUMBERS)
        second: Any = p.source(NUMBERS)
        if self.kind == "non-keyed":
            p.collect(first.connect_and_process(second, Merge()))
        elif self.kind == "global":
            p.collect(first.global_().connect_and_process(second.global_(), Merge()))
        elif self.kind == "keyed":
            p.collect(first.key_by(mod3).connect_and_process(second.key_by(mod3), Merge(keyed=True)))
        else:
            merged = first.key_by(mod3).connect_and_process(second.key_by(mod3), Merge(keyed=True), key_of)
            p.collect(merged.process(Located(keyed=True)))

    def check(self, run: Run) -> None:
        seen: list[Seen] = run.out()
        if self.kind == "keyed-kept":
            assert all((record.subtask, record.key) == (record.value.subtask, record.value.key) for record in seen)
            seen = [record.value for record in seen]
        for number in (1, 2):
            values = [record.value for record in seen if record.input == number]
            assert sorted(values) == list(NUMBERS)
            if run.parallelism == 1:
                assert values == list(NUMBERS)
        if self.kind == "non-keyed":
            assert all(record.subtask == record.value % run.parallelism for record in seen)
        elif self.kind == "global":
            assert {record.subtask for record in seen} == {0}
        else:
            check_keys(run.parallelism, seen)


@dataclass(frozen=True)
class WithBroadcast(Program):
    """A stream connected with a broadcast one, from either side: every partition sees every rule."""

    main: Literal["non-keyed", "keyed", "keyed-kept"]
    broadcast_first: bool

    @property
    def name(self) -> str:
        return f"broadcast×{self.main}" if self.broadcast_first else f"{self.main}×broadcast"

    def build(self, p: Pipeline) -> None:
        keyed = self.main != "non-keyed"
        main: Any = p.source(NUMBERS)
        if keyed:
            main = main.key_by(mod3)
        side: Any = p.source(NUMBERS).broadcast()
        left, right = (side, main) if self.broadcast_first else (main, side)
        if self.main == "keyed-kept":
            kept = left.connect_and_process(right, Rules(keyed=True), key_of)
            p.collect(kept.process(Located(keyed=True)))
        else:
            p.collect(left.connect_and_process(right, Rules(keyed=keyed)))

    def check(self, run: Run) -> None:
        seen: list[Seen] = run.out()
        if self.main == "keyed-kept":
            assert all((record.subtask, record.key) == (record.value.subtask, record.value.key) for record in seen)
            seen = [record.value for record in seen]
        keys = None if self.main == "non-keyed" else {0, 1, 2}
        check_rules(run.parallelism, seen, rules=NUMBERS, main=NUMBERS, keys=keys)
        if run.parallelism == 1 and keys is None:
            assert [record.value for record in seen if record.input == 2] == list(NUMBERS)


class Join(TwoInputNonBroadcastStreamProcessFunction[int, int, tuple[int, int]]):
    """Inner join by key, with both sides in instance fields."""

    def __init__(self) -> None:
        self.left: dict[Any, list[int]] = {}
        self.right: defaultdict[Any, list[int]] = defaultdict(list)

    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        self.left.setdefault(key, []).append(record)
        for other in self.right[key]:
            output.collect((record, other))

    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None:
        key = ctx.state_manager.current_key
        self.right[key].append(record)
        for other in self.left.get(key, ()):
            output.collect((other, record))


class Joined(Program):
    """Every pair with equal keys is emitted once, in any order of arrival."""

    def build(self, p: Pipeline) -> None:
        p.collect(p.source(NUMBERS).key_by(mod3).connect_and_process(p.source(NUMBERS).key_by(mod3), Join()))

    def check(self, run: Run) -> None:
        run.expect_all(*((left, right) for left in NUMBERS for right in NUMBERS if mod3(left) == mod3(right)))


class PlusOne(OneInputStreamProcessFunction[int, int]):
    """Flink's operator tests: 1, 2, 3 become 2, 3, 4. At the end every key is emitted once more."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record + 1)

    def end_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(-partition.state_manager.current_key))


class Double(TwoOutputStreamProcessFunction[int, int, int]):
    """Flink's operator tests: 1, 2, 3 to the first output and 2, 4, 6 to the second. The end goes to both."""

    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None:
        first_output.collect(record)
        second_output.collect(record * 2)

    def end_input(self, ctx: Any) -> None:
        def visit(first: Any, second: Any, partition: Any) -> None:
            first.collect(-partition.state_manager.current_key)
            second.collect(-partition.state_manager.current_key * 2)

        ctx.apply_to_all_partitions(visit)


class Both(PassTwo):
    """Flink's operator tests: records are forwarded. At the end of each input every key so far is emitted once more."""

    def end_first_input(self, ctx: Any) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(-partition.state_manager.current_key))

    def end_second_input(self, ctx: Any) -> None:
        self.end_first_input(ctx)


class FlinkOperatorTests(Program):
    """``KeyedProcessOperatorTest``, ``KeyedTwoOutput…``, ``KeyedTwoInputNonBroadcast…``."""

    def build(self, p: Pipeline) -> None:
        keyed = p.source(NUMBERS).filter(lambda number: number in (1, 2, 3)).key_by(itself)
        p.collect(keyed.process(PlusOne()), "one")
        both = keyed.process(Double())
        p.collect(both.first, "first")
        p.collect(both.second, "second")
        left = p.source(NUMBERS).filter(lambda number: number in (1, 3)).key_by(itself)
        right = p.source(NUMBERS).filter(lambda number: number in (2, 4)).key_by(itself)
        p.collect(left.connect_and_process(right, Both()), "two")

    def check(self, run: Run) -> None:
        run.expect_all(2, 3, 4, -1, -2, -3, name="one")
        run.expect_all(1, 2, 3, -1, -2, -3, name="first")
        run.expect_all(2, 4, 6, -2, -4, -6, name="second")
        numbers = run.out("two")
        assert sorted(number for number in numbers if number > 0) == [1, 2, 3, 4]
        # The input that ends last visits all keys of its subtask. The other one visits the keys that exist by then.
        assert all(1 <= numbers.count(-key) <= 2 for key in (1, 2, 3, 4))


class Unread(Program):
    """Records of an unread output are dropped, and the operator still runs."""

    def build(self, p: Pipeline) -> None:
        both = p.source(NUMBERS).process(Split())
        p.collect(both.first)
        p.source(NUMBERS).process(Pass[int]()).with_uid(p.uid("unread"))

    def check(self, run: Run) -> None:
        run.expect(*(Seen(number, number % run.parallelism) for number in EVEN))
        assert run.progress("unread").records_in == len(NUMBERS)


CONNECTIONS: tuple[Literal["non-keyed", "keyed", "keyed-kept", "global"], ...] = (
    "non-keyed",
    "keyed",
    "keyed-kept",
    "global",
)
MAINS: tuple[Literal["non-keyed", "keyed", "keyed-kept"], ...] = ("non-keyed", "keyed", "keyed-kept")

PROGRAMS: tuple[Program, ...] = (
    NonKeyedProcess(),
    NonKeyedTwoOutputs(),
    KeyedProcess(),
    KeyPreservingProcess(),
    KeyedTwoOutputs(),
    GlobalProcess(),
    *(Connected(kind) for kind in CONNECTIONS),
    *(WithBroadcast(main, first) for main in MAINS for first in (False, True)),
    Joined(),
    FlinkOperatorTests(),
    Unread(),
)
