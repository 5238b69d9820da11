"""Emitters send the records of an operator downstream, one by one or in batches, with control elements in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from dsv2.errors import ContractError, InvalidKeyError
from dsv2.graph import KeySelector, Operator
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.state.partition import PartitionState

Emit: TypeAlias = Callable[[Any], object]
EmitStamped: TypeAlias = Callable[[Any, int | None], object]
"""Emits a record with a timestamp in ms, or None."""

Observer: TypeAlias = Callable[[Operator, Any], object]
"""Called with every record that an operator emits."""


class Emitter(ABC):
    """One output of an operator. ``emit`` and ``emit_stamped`` emit single records and are bound once: a hot path."""

    __slots__ = ("emit", "emit_stamped")

    checks_records = False
    """True if each record is checked when it is emitted. If so, records of several keys cannot be emitted together."""

    def __init__(self, emit: Emit, emit_stamped: EmitStamped) -> None:
        self.emit = emit
        self.emit_stamped = emit_stamped

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        """Emit all records of ``batch``, in order."""
        if batch.timestamps is None:
            emit = self.emit
            for record in batch.records:
                emit(record)
        else:
            emit_stamped = self.emit_stamped
            for record, timestamp in batch.pairs():
                emit_stamped(record, timestamp)

    @abstractmethod
    def control(self, kind: int, identifier: str, value: Any) -> None:
        """Emit a control element after the records emitted so far."""

    @property
    @abstractmethod
    def records_sent(self) -> int:
        """Number of records emitted so far. A broadcast record counts once."""


class NowhereEmitter(Emitter):
    """An output without consumers."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(lambda record: None, lambda record, timestamp: None)

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        pass

    def control(self, kind: int, identifier: str, value: Any) -> None:
        pass

    @property
    def records_sent(self) -> int:
        return 0


class Withholding(Emitter):
    """An edge that does not carry some watermarks. Records do not pass it: their functions are those of ``inner``."""

    __slots__ = ("_identifiers", "_inner")

    def __init__(self, inner: Emitter, identifiers: frozenset[str]) -> None:
        super().__init__(inner.emit, inner.emit_stamped)
        self._inner = inner
        self._identifiers = identifiers

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        self._inner.emit_batch(batch)

    def control(self, kind: int, identifier: str, value: Any) -> None:
        if identifier not in self._identifiers:
            self._inner.control(kind, identifier, value)

    @property
    def records_sent(self) -> int:
        return self._inner.records_sent


def fan_out(emitters: Sequence[Emitter]) -> Emitter:
    """Return an emitter that emits to all ``emitters``."""
    match emitters:
        case []:
            return NowhereEmitter()
        case [one]:
            return one
    return _FanOut(emitters)


class _FanOut(Emitter):
    __slots__ = ("_emitters",)

    def __init__(self, emitters: Sequence[Emitter]) -> None:
        super().__init__(
            _each([emitter.emit for emitter in emitters]), _each_stamped([emitter.emit_stamped for emitter in emitters])
        )
        self._emitters = emitters

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        for emitter in self._emitters:
            emitter.emit_batch(batch)

    def control(self, kind: int, identifier: str, value: Any) -> None:
        for emitter in self._emitters:
            emitter.control(kind, identifier, value)

    @property
    def records_sent(self) -> int:
        return self._emitters[0].records_sent


def _each(emits: Sequence[Emit]) -> Emit:
    if len(emits) == 2:
        first, second = emits

        def emit_to_both(record: Any) -> None:
            first(record)
            second(record)

        return emit_to_both

    def emit_to_each(record: Any) -> None:
        for emit in emits:
            emit(record)

    return emit_to_each


def _each_stamped(emits: Sequence[EmitStamped]) -> EmitStamped:
    def emit_to_each(record: Any, timestamp: int | None) -> None:
        for emit in emits:
            emit(record, timestamp)

    return emit_to_each


class InspectingEmitter(Emitter):
    """Calls ``look(record)`` before it emits a record to ``inner``."""

    __slots__ = ("_inner",)

    def __init__(self, inner: Emitter, look: Callable[[Any], object]) -> None:
        inner_emit, inner_emit_stamped = inner.emit, inner.emit_stamped

        def emit(record: Any) -> None:
            look(record)
            inner_emit(record)

        def emit_stamped(record: Any, timestamp: int | None) -> None:
            look(record)
            inner_emit_stamped(record, timestamp)

        super().__init__(emit, emit_stamped)
        self._inner = inner

    def control(self, kind: int, identifier: str, value: Any) -> None:
        self._inner.control(kind, identifier, value)

    @property
    def records_sent(self) -> int:
        return self._inner.records_sent


class Tap(InspectingEmitter):
    """Passes every record to an observer."""

    __slots__ = ("_observe",)

    def __init__(self, inner: Emitter, operator: Operator, observer: Observer) -> None:
        def observe(record: Any) -> None:
            observer(operator, record)

        super().__init__(inner, observe)
        self._observe = observe

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        if not batch.is_columnar:  # columns cannot change
            for record in batch.records:
                self._observe(record)
        self._inner.emit_batch(batch)


class KeyGuard(InspectingEmitter):
    """Guards a key-preserving output: rejects records whose key is not the current key."""

    __slots__ = ()

    checks_records = True

    def __init__(self, inner: Emitter, select: KeySelector, partition: PartitionState) -> None:
        def check(record: Any) -> None:
            key, expected = select(record), partition.current_key
            if key != expected:
                raise InvalidKeyError(
                    f"The output key must equal the input key when the stream stays keyed: record {shorten(record)} "
                    f"has the key {shorten(key)}, but the current key is {shorten(expected)}."
                )

        super().__init__(inner, check)


class EndGuard(InspectingEmitter):
    """Guards an output of a function that declares to emit nothing before the end of its input."""

    __slots__ = ()

    checks_records = True

    def __init__(self, inner: Emitter, has_ended: Callable[[], bool]) -> None:
        def check(record: Any) -> None:
            if not has_ended():
                raise ContractError(
                    f"The function is marked with no_output_until_end_of_input but emitted {shorten(record)} before "
                    f"the end of its input. Emit in end_input, or remove the mark."
                )

        super().__init__(inner, check)
