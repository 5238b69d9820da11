"""Ways through a job: between subtasks, fields, states, keys, watermarks. The same programs run on both runtimes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.state import StateDeclaration, StateDeclarations, ValueStateDeclaration
from dsv2.testing import Stop, TestSource
from tests.conformance.functions import Pass
from tests.values.awkward import GROUPS, annotation_at, value_at


class Entry(NamedTuple):
    """A record of the ways through jobs: a value and its position."""

    position: int
    value: Any


class Emit(OneInputStreamProcessFunction[int, Entry]):
    """Emits the values at the positions that it receives."""

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        output.collect(Entry(record, value_at(record)))


def emitted(env: ExecutionEnvironment, positions: Sequence[int | Stop]) -> Any:
    """A stream of the values with these positions, which are created in the tasks."""
    return env.from_source(TestSource[int](positions)).with_uid("source").process(Emit())


def build_exchange(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """Through an exchange, in single records."""
    sink = CollectSink[Entry]()
    emitted(env, positions).shuffle().process(Pass()).to_sink(sink)
    return sink


class Fields(OneInputStreamProcessFunction[int, Entry]):
    """Keeps values in a field, and emits them in the next micro-batch."""

    def __init__(self) -> None:
        self.kept: dict[int, Any] = {}

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        if record >= 0:
            self.kept[record] = value_at(record)
        else:
            output.collect(Entry(-1 - record, self.kept[-1 - record]))


def build_field(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """Through the checkpoint, in a field of a function."""
    sink = CollectSink[Entry]()
    _stored_and_read(env, positions, "for fields").process(Fields()).with_parallelism(1).to_sink(sink)
    return sink


def _stored_and_read(env: ExecutionEnvironment, positions: Sequence[int], uid: str) -> Any:
    """The positions in one micro-batch, and their negatives (-1 for 0) in another."""
    records = [*positions, *(-1 - position for position in positions)]
    return env.from_collection(records, records_per_batch=len(positions)).with_parallelism(1).with_uid(uid)


def _first(one: object, other: object) -> object:
    return one


VALUE = StateDeclarations.value_state("value", object)
LIST = StateDeclarations.list_state("list", object)
MAP = StateDeclarations.map_state("map", object, object)
KEYS = StateDeclarations.map_state("keys", object, int)
REDUCED = StateDeclarations.reducing_state("reduced", object, _first)


class Keep(OneInputStreamProcessFunction[int, Entry]):
    """Stores each value in the states of a key of its own, and emits what they have in the next micro-batch."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [VALUE, LIST, MAP, REDUCED]

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        states = ctx.state_manager
        value, items = states.get_state(VALUE), states.get_state(LIST)
        items_by_key, reduced = states.get_state(MAP), states.get_state(REDUCED)
        if record >= 0:
            kept = value_at(record)
            value.update(kept)
            items.add_all([kept, kept])
            items_by_key.put("key", kept)
            reduced.add(kept)
        else:
            for kept in (value.value(), *items.get(), items_by_key.get("key"), reduced.get()):
                output.collect(Entry(-1 - record, kept))


class KeepKeys(OneInputStreamProcessFunction[int, Entry]):
    """Stores each value as a key of a map."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [KEYS]

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        items = ctx.state_manager.get_state(KEYS)
        if record >= 0:
            items.put(value_at(record), 1)
        else:
            for key in items:
                output.collect(Entry(-1 - record, key))


def position_of(record: int) -> int:
    """The position of a value that is stored, or of one that is read."""
    return record if record >= 0 else -1 - record


def build_state(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """Through the checkpoint, in declared states."""
    sink = CollectSink[Entry]()
    _stored_and_read(env, positions, "for states").key_by(position_of).process(Keep()).with_uid("keep").to_sink(sink)
    return sink


def build_map_keys(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """Through the checkpoint, as the keys of a map state."""
    sink = CollectSink[Entry]()
    _stored_and_read(env, positions, "for maps").key_by(position_of).process(KeepKeys()).to_sink(sink)
    return sink


POSITIONS = StateDeclarations.list_state("positions", int)


class ByKey(OneInputStreamProcessFunction[int, Entry]):
    """Emits the current key from a timer, which fires at the end."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [POSITIONS]

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        ctx.state_manager.get_state(POSITIONS).add(record)
        timers = ctx.processing_time_manager
        timers.register_timer(timers.current_time() + 1)

    def on_processing_timer(self, timestamp: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        for position in ctx.state_manager.get_state(POSITIONS).get():
            output.collect(Entry(position, ctx.state_manager.current_key))


def build_key(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """As the key of a record, its state and its timer."""
    sink = CollectSink[Entry]()
    env.from_collection(list(positions)).with_uid("for keys").key_by(value_at).process(ByKey()).to_sink(sink)
    return sink


@dataclass(frozen=True)
class Signal:
    """The value of a watermark."""

    position: int
    value: object


SIGNAL = new_builder("signal").type_of(Signal).combine_function_last().deliver_on_arrival().build()


class SendSignals(OneInputStreamProcessFunction[int, Entry]):
    """Emits values as watermarks."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [SIGNAL]

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        signal = Signal(record, value_at(record))
        ctx.non_partitioned_context.watermark_manager.emit_watermark(SIGNAL.new_watermark(signal))


class ReceiveSignals(OneInputStreamProcessFunction[Entry, Entry]):
    """Emits the values of watermarks as records."""

    def process_record(self, record: Entry, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Entry], ctx: NonPartitionedContext[Entry]
    ) -> WatermarkHandlingResult:
        output.collect(Entry(watermark.value.position, watermark.value.value))
        return WatermarkHandlingResult.PEEK


def build_watermark(env: ExecutionEnvironment, positions: Sequence[int]) -> CollectSink[Entry]:
    """As a watermark of a data class."""
    sink = CollectSink[Entry]()
    sent = env.from_collection(list(positions)).with_uid("for watermarks").process(SendSignals())
    sent.shuffle().process(ReceiveSignals()).to_sink(sink)
    return sink


# Type -> the declaration of a state of this type.
TYPED: dict[str, ValueStateDeclaration[Any]] = {
    str(group.annotation): StateDeclarations.value_state(f"value of {number}", group.annotation)
    for number, group in enumerate(GROUPS)
}


class KeepTyped(OneInputStreamProcessFunction[int, Entry]):
    """Stores each value in a state with its declared type, and emits what the state has."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return list(TYPED.values())

    def process_record(self, record: int, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        position = position_of(record)
        state = ctx.state_manager.get_state(TYPED[str(annotation_at(position))])
        if record >= 0:
            state.update(value_at(position))
        else:
            output.collect(Entry(position, state.value()))


class Reject(OneInputStreamProcessFunction[Entry, Entry]):
    """Fails for every record, unless it is corrected."""

    def __init__(self, corrected: bool = False) -> None:
        self.corrected = corrected

    def process_record(self, record: Entry, output: Collector[Entry], ctx: PartitionedContext[Entry]) -> None:
        if not self.corrected:
            raise ValueError("rejected")
        output.collect(record)
