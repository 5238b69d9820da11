"""The code that is checked: a gate by itself, and a subtask whose operator reads gates and writes to an edge.

A run processes frames. It can be copied at any point by ``snapshot`` and ``restored``: a restart.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, Protocol, Self

from dsv2.errors import JobError
from dsv2.extension.event_time import (
    OneInputEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from dsv2.graph import Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.exchange.wire import Wire
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.proofs.behaviour import AGREES, Behaviour
from tests.proofs.events import TICK
from tests.proofs.model import BEGIN_MS, CROSSING, DISORDER, EXCEEDED, Reaction, Seen
from tests.proofs.rules import Frozen
from tests.support import Signal, elements, job_context, operator_named, packed


class Run(Protocol):
    """Code in one state."""

    def receive(self, channel: int, sequence: Sequence[Any]) -> Reaction:
        """Process a frame of ``channel``, numbered over all inputs."""

    def snapshot(self) -> Any:
        """The state, for ``System.restored``."""

    def key(self) -> Frozen:
        """The state without what cannot influence watermarks: the numbers of records so far."""


class System(Protocol):
    """Creates runs."""

    def started(self) -> Run:
        """A run that begins."""

    def restored(self, state: Any) -> Run:
        """A run that continues from a snapshot."""


TICK_MS = 1000
_ATOMS = frozenset((str, bool, type(None), frozenset))
_FAILURES = {
    "aligned watermarks cross": CROSSING,
    "must increase": DISORDER,
    "(timeout)": EXCEEDED,
    "(max_records)": EXCEEDED,
}


def frozen(value: Any, now_ms: int = 0) -> Any:
    """``value`` as nested tuples. Dictionaries keep their order, which is a part of the state.

    Times are relative to ``now_ms``, and all that are long ago are the same.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        if now_ms and BEGIN_MS <= value < 2 * BEGIN_MS:
            return ("now", max(value - now_ms, -3 * TICK_MS))
        return value
    if isinstance(value, tuple | list):
        return tuple([member if type(member) in _ATOMS else frozen(member, now_ms) for member in value])
    if kind is dict or isinstance(value, Mapping):
        return tuple([(key, frozen(member, now_ms)) for key, member in value.items()])
    return value


class _CrossingError(Exception):
    """Channels are held back by different rounds."""


class GateSystem:
    """An ``InputGate`` with a listener."""

    def __init__(self, declarations: Mapping[str, WatermarkDeclaration], channels: int) -> None:
        self._declarations = declarations
        self._channels = channels

    def started(self) -> GateRun:
        return GateRun(self._declarations, self._channels)

    def restored(self, state: Any) -> GateRun:
        run = self.started()
        run.gate.restore(state)
        return run


class GateRun:
    """A gate and what its listener sees."""

    def __init__(self, declarations: Mapping[str, WatermarkDeclaration], channels: int) -> None:
        self.gate = InputGate(0, channels, declarations, self)
        self._seen: list[Seen] = []

    def receive(self, channel: int, sequence: Sequence[Any]) -> Reaction:
        self._seen = []
        try:
            self.gate.receive(channel, *packed(sequence))
        except _CrossingError:
            self._seen.append(CROSSING)
        return Reaction(tuple(self._seen), ())

    def snapshot(self) -> Any:
        return self.gate.snapshot()

    def key(self) -> Frozen:
        key: Frozen = frozen(self.gate.snapshot())
        return key

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        self._seen += [("record", 0, record) for record in batch.records]

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        self._seen.append(("watermark", 0, identifier, value))

    def on_status(self, input_index: int, idle: bool) -> None:
        self._seen.append(("idle", 0, idle))

    def on_end(self, input_index: int) -> None:
        self._seen.append(("end", 0))

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        raise _CrossingError


class _Watching:
    """The base of all functions: they note what they see, pass records on, and agree to watermarks by default."""

    seen: ClassVar[list[Seen]] = []
    """The calls of the current run. Not a field, because fields are checkpointed."""
    declared: ClassVar[Mapping[str, WatermarkDeclaration]] = {}
    behaviour: ClassVar[Behaviour] = AGREES

    @classmethod
    def declaring(cls, declarations: Iterable[WatermarkDeclaration], behaviour: Behaviour = AGREES) -> Self:
        """A function with these declarations. They are not fields either: those are encoded in every step."""
        declared = {declaration.identifier: declaration for declaration in declarations}
        function: Self = type(cls.__name__, (cls,), {"declared": declared, "behaviour": behaviour})()
        return function

    def declare_watermarks(self) -> Sequence[WatermarkDeclaration]:
        return [*self.declared.values()]

    def _record(self, number: int, record: Any, output: Any, ctx: Any) -> None:
        self.seen.append(("record", number, record))
        for element in self.behaviour.for_record(record):
            if isinstance(element, Signal):
                self._emit(element, ctx.non_partitioned_context)
            else:
                output.collect(element)

    def _watermark(self, number: int, watermark: Watermark, ctx: Any) -> WatermarkHandlingResult:
        self.seen.append(("watermark", number, watermark.identifier, watermark.value))
        for element in self.behaviour.for_watermark(watermark.value):
            self._emit(element, ctx)
        is_polled = watermark.value in self.behaviour.polled
        return WatermarkHandlingResult.POLL if is_polled else WatermarkHandlingResult.PEEK

    def _emit(self, element: Signal, ctx: Any) -> None:
        ctx.watermark_manager.emit_watermark(self.declared[element.identifier].new_watermark(element.value))

    def close(self) -> None:
        self.seen.append(("close",))


class WatchingOne(_Watching, OneInputEventTimeStreamProcessFunction[Any, Any]):
    """Has one input."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self._record(0, record, output, ctx)

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self._watermark(0, watermark, ctx)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.seen.append(("time", timestamp))

    def end_input(self, ctx: Any) -> None:
        self.seen.append(("end", 0))


class WatchingTwo(_Watching, TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    """Has two inputs."""

    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None:
        self._record(0, record, output, ctx)

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None:
        self._record(1, record, output, ctx)

    def on_watermark_from_first_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self._watermark(0, watermark, ctx)

    def on_watermark_from_second_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return self._watermark(1, watermark, ctx)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.seen.append(("time", timestamp))

    def end_first_input(self, ctx: Any) -> None:
        self.seen.append(("end", 0))

    def end_second_input(self, ctx: Any) -> None:
        self.seen.append(("end", 1))


class _OnceDecoding(Codec):
    """Decodes the state of a subtask once for all steps from it: each of them receives a copy."""

    def __init__(self, types: TypeRegistry) -> None:
        super().__init__(types)
        self._last = b""
        self._decoded = b""

    def unseal(self, kind: BlobKind, blob: bytes | memoryview, owner: str) -> Any:
        if kind is not BlobKind.STATE:
            return super().unseal(kind, blob, owner)
        if blob != self._last:
            self._last, self._decoded = bytes(blob), pickle.dumps(super().unseal(kind, blob, owner))
        return pickle.loads(self._decoded)  # noqa: S301  # written in this process


class SubtaskSystem:
    """Subtask ``index`` of the operator ``uid``: its gates, its function, its sender, and the edge behind it."""

    def __init__(self, plan: Plan, uid: str, index: int = 0) -> None:
        self.plan = plan
        self.operator = operator_named(plan, uid)
        self.index = index
        self.job = dataclasses.replace(job_context(plan), codec=_OnceDecoding(TypeRegistry.of(plan)))
        self.wire = Wire(plan, self.job.codec)
        policies = (declaration.combination_policy for declaration in plan.declarations.values())
        self.has_barriers = any(policy.barrier is not None for policy in policies)

    def started(self) -> SubtaskRun:
        run = SubtaskRun(self)
        run.subtask.open()
        run.subtask.flush()
        return run

    def restored(self, state: Any) -> SubtaskRun:
        blob, now_ms = state
        run = SubtaskRun(self, now_ms)
        run.subtask.restore(blob)
        return run


class SubtaskRun:
    """A subtask, what its function sees, and what it sends."""

    def __init__(self, system: SubtaskSystem, now_ms: int = BEGIN_MS) -> None:
        operator, self._wire = system.operator, system.wire
        self._time, self._now_ms = system.job.time, now_ms  # the time of all runs is that of the one that runs
        self._counts_late = system.has_barriers
        self._frames: list[Frame] = []
        functions = {operator.id: copy.copy(operator.function)}
        self.subtask = Subtask(system.plan, operator.id, system.index, functions, system.job, self._frames.append)

    def receive(self, channel: int, sequence: Sequence[Any]) -> Reaction:
        self._frames.clear()
        _Watching.seen.clear()
        before = self._counts()
        try:
            self._run(channel, sequence)
        except JobError as error:
            failure = next((seen for text, seen in _FAILURES.items() if text in str(error)), None)
            if failure is None:
                raise
            return Reaction((failure,), ())
        self.subtask.flush()
        counted = [("count", name, amount) for name, amount in sorted((self._counts() - before).items())]
        sent = tuple(elements(map(self._wire.send, self._frames)))
        return Reaction((*_Watching.seen, *counted), sent)

    def _run(self, channel: int, sequence: Sequence[Any]) -> None:
        ticks = sequence[:1] == (TICK,)
        self._now_ms += TICK_MS * ticks
        self._time.now_ms = self._now_ms
        self.subtask.begin_batch()
        if len(sequence) > ticks:
            self.subtask.receive(channel, *packed(sequence[ticks:]))
        if ticks:
            self.subtask.end_batch()

    def _counts(self) -> Counter[str]:
        return Counter(self.subtask.head.progress().counters if self._counts_late else {})

    def snapshot(self) -> tuple[bytes, int]:
        return self.subtask.snapshot(), self._now_ms

    def key(self) -> Frozen:
        state = self.subtask.head.snapshot()
        hidden = ("fields", "records_in", "counters")
        return tuple((name, frozen(value, self._now_ms)) for name, value in state.items() if name not in hidden)
