"""Programs with an invalid record, function or value, and their allowed outcomes."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowContext, WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.state import StateDeclaration, StateDeclarations, aggregate_of
from dsv2.watermark import WatermarkDeclaration, new_builder
from storms.common.outcome import Outcome

__all__ = ("POISONED", "POISONS", "Fixed", "Item", "Pass", "Poison", "Raise", "items", "own_key", "through")

RECORDS = 20
PER_BATCH = 7
POISONED = 13
"""The number of the poisoned record."""
MARK = new_builder("mark").type_long().combine_function_max().build()
MEAN = StateDeclarations.value_state("mean", np.ndarray)

_RIGHT = (Outcome.RIGHT,)
_REFUSED = (Outcome.NAMED,)
_EITHER = (Outcome.RIGHT, Outcome.NAMED)


class Item(NamedTuple):
    key: Any
    number: Any


class Nothing:
    """Neither a valid key nor a valid value of a watermark."""

    __hash__ = None  # type: ignore[assignment]  # keys must be hashable


@dataclass(frozen=True)
class Poison:
    """A program with an invalid record, function or value.

    Attributes:
        name: The name of the case.
        wanted: The allowed outcomes.
        build: Adds the program to the environment. Returns its sink and the expected content.
        names: A refusal must contain all of these.
        on_spark_only: Whether the program would end the process of the local runtime.
    """

    name: str
    wanted: Sequence[Outcome]
    build: Callable[[ExecutionEnvironment], tuple[CollectSink[Any], Counter[Any]]]
    names: Sequence[str] = ()
    on_spark_only: bool = False


def items() -> list[Item]:
    """The records."""
    return [Item(f"key-{number % 3}", number) for number in range(RECORDS)]


def own_key(item: Item) -> Hashable:
    key: Hashable = item.key
    return key


def through(
    function: Any, records: Sequence[Any] | None = None, wanted: Sequence[Any] | None = None
) -> Callable[[ExecutionEnvironment], tuple[CollectSink[Any], Counter[Any]]]:
    """A program with a keyed function (uid ``poison``). ``wanted``: its output (default: the same records)."""

    def build(env: ExecutionEnvironment) -> tuple[CollectSink[Any], Counter[Any]]:
        given = items() if records is None else records
        source = CollectionSource(given, records_per_batch=PER_BATCH)
        stream: Any = env.from_source(source).with_uid("source").key_by(own_key)
        sink = CollectSink[Any]()
        stream.process(function()).with_uid("poison").to_sink(sink)
        return sink, Counter(map(repr, given if wanted is None else wanted))

    return build


class Pass(OneInputStreamProcessFunction[Item, Any]):
    """Forwards records."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        if record.number == POISONED:
            self.poison(record, output, ctx)
        else:
            output.collect(record)

    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        """Process the poisoned record."""
        output.collect(record)


class Raise(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        raise ValueError("poison")


class Fixed(Pass):
    """``Raise`` after its repair."""


class Recurse(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        self.poison(record, output, ctx)


class Exit(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        sys.exit("poison")


class OwnBaseException(BaseException):
    pass


class RaiseBase(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        raise OwnBaseException("poison")


class RaiseInOpen(Pass):
    def open(self, ctx: NonPartitionedContext[Any]) -> None:
        raise ValueError("poison")


class RaiseInClose(Pass):
    def close(self) -> None:
        raise ValueError("poison")


class RaiseInEndInput(Pass):
    def end_input(self, ctx: NonPartitionedContext[Any]) -> None:
        raise ValueError("poison")


class EndProcess(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        os._exit(3)


class Crash(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class Yields(OneInputStreamProcessFunction[Item, Any]):
    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> Iterator[Item]:  # type: ignore[override]
        yield record


class IsCoroutine(OneInputStreamProcessFunction[Item, Any]):
    async def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:  # type: ignore[override]
        output.collect(record)


class Returns(OneInputStreamProcessFunction[Item, Any]):
    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> Item:  # type: ignore[override]
        return record


class MisspeltCallback(Pass):
    def on_watermarks(self, watermark: Any, output: Any, ctx: Any) -> None:
        """Never called."""


class EmitsNone(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(None)


class ChangesAfterwards(OneInputStreamProcessFunction[Item, Any]):
    """Emits the same list twice and modifies it in between."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        emitted = [record.number]
        output.collect(emitted)
        emitted.append(-1)
        output.collect(emitted)


class EmitsMany(Pass):
    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        for number in range(200_000):
            output.collect(number)


class EmitsManyWatermarks(Pass):
    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [MARK]

    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        for number in range(200_000):
            ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(number))
        output.collect(record)


class EmitsWatermark(Pass):
    """Emits a watermark with the given value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [MARK]

    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(MARK.new_watermark(self.value))
        output.collect(record)


class KeepsArray(OneInputStreamProcessFunction[Item, Any]):
    """Keeps a count in an array."""

    def uses_states(self) -> list[StateDeclaration]:
        return [MEAN]

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        state = ctx.state_manager.get_state(MEAN)
        before = state.value()
        state.update(np.array([1]) if before is None else before + 1)
        output.collect((record.key, int(state.value()[0])))  # type: ignore[index]  # it was updated


def time_of(item: Item) -> int:
    time: int = item.number
    return time


def count_one(item: Item, count: int) -> int:
    return count + 1


def emit_count(count: int, window: WindowContext, ctx: PartitionedContext[Any]) -> Any:
    return window.start_time, count


def in_windows(
    time: Any, start: int | None = None
) -> Callable[[ExecutionEnvironment], tuple[CollectSink[Any], Counter[Any]]]:
    """A program with one-second windows and a record at ``time``. ``start``: the start of its window, if it has one."""

    def build(env: ExecutionEnvironment) -> tuple[CollectSink[Any], Counter[Any]]:
        given = [Item("a", 100), Item("a", time), Item("a", 200)]
        generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
        timed: Any = env.from_source(CollectionSource(given)).with_uid("source").with_parallelism(1).process(generator)
        seconds = (
            timed.with_uid("time")
            .with_parallelism(1)
            .key_by(own_key)
            .window(WindowStrategy.tumbling(timedelta(seconds=1)))
        )
        sink = CollectSink[Any]()
        seconds.aggregate(aggregate_of(int, count_one, int), emit_count).with_uid("poison").to_sink(sink)
        return sink, Counter([repr((0, 2)), "an error" if start is None else repr((start, 1))])

    return build


_IN_RECORD = ("'poison'", "process_record", f"number={POISONED}")
_NUMBERED = [(f"key-{key}", nth) for key in range(3) for nth in range(1, len(range(key, RECORDS, 3)) + 1)]
_OTHERS = [item for item in items() if item.number != POISONED]


def _with_key(name: str, key: Any, wanted: Sequence[Outcome]) -> Poison:
    return Poison(f"key: {name}", wanted, through(Pass, [*items(), Item(key, 100)]), ("'poison'",))


def _with_watermark(name: str, value: Any, wanted: Sequence[Outcome] = _REFUSED) -> Poison:
    return Poison(f"watermark: {name}", wanted, through(lambda: EmitsWatermark(value)), _IN_RECORD)


POISONS: Sequence[Poison] = (
    Poison("nothing", _RIGHT, through(Pass)),
    # --- functions that fail ---
    Poison("raises on one record", _REFUSED, through(Raise), _IN_RECORD),
    Poison("recursion without end", _REFUSED, through(Recurse), _IN_RECORD),
    Poison("SystemExit", _REFUSED, through(Exit), _IN_RECORD),
    Poison("a BaseException of one's own", _REFUSED, through(RaiseBase), _IN_RECORD),
    Poison("raises in open", _REFUSED, through(RaiseInOpen), ("'poison'", "open")),
    Poison("raises in close", _REFUSED, through(RaiseInClose), ("'poison'", "close")),
    Poison("raises in end_input", _REFUSED, through(RaiseInEndInput), ("'poison'", "end_input")),
    Poison("os._exit", _REFUSED, through(EndProcess), ("'poison'",), on_spark_only=True),
    Poison("SIGSEGV", _REFUSED, through(Crash), ("'poison'",), on_spark_only=True),
    # --- functions that are mistakes ---
    Poison("process_record is a generator", _REFUSED, through(Yields), ("process_record",)),
    Poison("process_record is a coroutine", _REFUSED, through(IsCoroutine), ("process_record",)),
    Poison("process_record returns a value", _REFUSED, through(Returns), ("process_record",)),
    Poison("misspelt callback", _REFUSED, through(MisspeltCallback), ("on_watermarks",)),
    Poison(
        "record changed after it was emitted",
        _EITHER,
        through(ChangesAfterwards, wanted=[[*n] for i in items() for n in ([i.number], [i.number, -1])]),
        ("'poison'",),
    ),
    # --- what is emitted ---
    Poison("emits None", _EITHER, through(EmitsNone, wanted=[*_OTHERS, None]), ("'poison'",)),
    Poison("200,000 records from one", _RIGHT, through(EmitsMany, wanted=[*_OTHERS, *range(200_000)])),
    Poison("200,000 watermarks from one", _RIGHT, through(EmitsManyWatermarks)),
    Poison("a record of 20 MB", _RIGHT, through(Pass, [*items(), Item("a", "x" * 20_000_000)])),
    Poison("an array in state", _EITHER, through(KeepsArray, wanted=_NUMBERED), ("'mean'",)),
    # --- keys ---
    _with_key("None", None, _REFUSED),
    _with_key("list", [1], _REFUSED),
    _with_key("tuple that holds a dict", (1, {}), _REFUSED),
    _with_key("NaN", math.nan, _REFUSED),
    _with_key("object without hash", Nothing(), _REFUSED),
    _with_key("emoji", "🌩", _RIGHT),
    _with_key("NUL", "a\0b", _RIGHT),
    _with_key("lone surrogate", "\ud800", _RIGHT),
    _with_key("empty", "", _RIGHT),
    _with_key("2**5000", 2**5000, _RIGHT),
    _with_key("bytes", b"key-1", _RIGHT),
    # --- watermarks ---
    _with_watermark("2**63 - 1", 2**63 - 1, _RIGHT),
    _with_watermark("-2**63", -(2**63), _RIGHT),
    _with_watermark("2**63", 2**63),
    _with_watermark("1.5", 1.5),
    _with_watermark("None", None),
    _with_watermark("text", "x"),
    _with_watermark("True", True, _EITHER),
    # --- timestamps ---
    Poison("timestamp: negative", _RIGHT, in_windows(-1500, -2000)),
    Poison("timestamp: NaN", _REFUSED, in_windows(math.nan), ("timestamp",)),
    Poison("timestamp: 1.5", _REFUSED, in_windows(1.5), ("timestamp",)),
    Poison("timestamp: 2**63", _REFUSED, in_windows(2**63), ("timestamp",)),
    Poison("timestamp: 2**70", _REFUSED, in_windows(2**70), ("timestamp",)),
    Poison(
        "timestamp: in the last window", _EITHER, in_windows(2**63 - 100, (2**63 - 100) // 1000 * 1000), ("timestamp",)
    ),
)
