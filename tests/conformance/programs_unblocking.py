"""Programs for error policies of sources and sinks, and for records that are skipped by request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv2 import CollectSink, DeadLetter, ErrorPolicy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model import RecordBatch
from dsv2.sources import RoundRobinSplitAssigner, SplitBatch
from tests.conformance.functions import NUMBERS
from tests.conformance.harness import Pipeline, Program, Run
from tests.spans import Item, Span, Spans, everything

ENDS = {"a": 14, "b": 3, "c": 0, "d": 8, "e": 1}
LETTERS = ErrorPolicy().dead_letter(ValueError)
ODD = [item for item in everything(ENDS) if item.number % 2]
EVEN = [item for item in everything(ENDS) if item.number % 2 == 0]


def even(item: Item) -> Item:
    """Fails for odd numbers."""
    if item.number % 2:
        raise ValueError(f"odd: {item.number}")
    return item


class Decoded(Spans):
    """Decodes items, which fails for those with odd numbers. The number of an item is its offset."""

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for run in super().read(start, stop):
            items = run.records
            yield SplitBatch(items, even, offsets=lambda items=items: [item.number for item in items])  # type: ignore[misc]


class Counted(OneInputStreamProcessFunction[Item, tuple[Item, int]]):
    """Emits records with their number in the key."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        self.counts[record.span] = self.counts.get(record.span, 0) + 1
        output.collect((record, self.counts[record.span]))


def span_of(item: Item) -> str:
    """A key selector."""
    return item.span


def described(letter: DeadLetter[Item]) -> tuple[Any, ...]:
    """The parts of a dead letter that do not depend on the setting."""
    position = letter.position
    assert position is not None
    source = position.source.rpartition("/")[2]
    return source, position.split, position.offset, letter.record, letter.callback, letter.error_message


class UndecodableValues(Program):
    """They become dead letters with their positions, except those that are skipped by request.

    Functions see the other records in order, chained to the source or not.
    """

    def build(self, p: Pipeline) -> None:
        source = Decoded(ENDS, limit=p.records_per_batch(sum(ENDS.values())), assigner=RoundRobinSplitAssigner())
        decoded = p.env.from_source(source).with_uid(p.uid("in")).with_error_policy(LETTERS)
        p.skips[p.uid("in")] = [("d", number) for number in range(ENDS["d"])]
        p.collect(decoded.map(lambda item: item).key_by(span_of).process(Counted()), "counted")
        p.collect(decoded.dead_letters(Item).map(described), "letters")

    def check(self, run: Run) -> None:
        kept = {name: [item for item in EVEN if item.span == name] for name in ENDS if name != "d"}
        expected = [(item, n) for items in kept.values() for n, item in enumerate(items, 1)]
        run.expect_all(*expected, name="counted")
        odd = [item for item in ODD if item.span != "d"]
        letters = [("in", i.span, i.number, i, "decode", f"odd: {i.number}") for i in odd]
        run.expect_all(*letters, name="letters")
        counters = {"errors_dead_lettered": len(odd), "records_skipped": ENDS["d"]}
        assert run.progress("in").counters == counters


class EvenSink(CollectSink[int]):
    """Refuses odd numbers."""

    def check_record(self, record: int) -> None:
        if record % 2:
            raise ValueError(f"odd: {record}")


class RecordsThatDoNotFitASink(Program):
    """They become dead letters of the sink, which writes the others."""

    def build(self, p: Pipeline) -> None:
        p.sinks["even"] = EvenSink()
        written = p.source(NUMBERS).to_sink(p.sinks["even"]).with_uid(p.uid("even")).with_error_policy(LETTERS)
        p.collect(written.dead_letters(int).map(lambda letter: letter.record), "odd")

    def check(self, run: Run) -> None:
        run.expect_all(*(number for number in NUMBERS if number % 2 == 0), name="even")
        run.expect_all(*(number for number in NUMBERS if number % 2), name="odd")


PROGRAMS: tuple[Program, ...] = (UndecodableValues(), RecordsThatDoNotFitASink())
