"""A source that reads several sources in sequence, for example history from files and then a stream."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic

from dsv2.base.clock import Clock
from dsv2.base.record_position import Offset, SplitName
from dsv2.base.type_variables import T, T_co
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.model.record_batch import RecordBatch
from dsv2.sources.serializers import JsonValue, Serializer
from dsv2.sources.source import (
    Portion,
    ReaderInfo,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
    SupportsPauseOrResumeSplits,
    SupportsSplitReassignmentOnRecovery,
)
from dsv2.sources.split_batch import SplitBatch
from dsv2.watermark import BoolWatermarkDeclaration, Watermark, WatermarkDeclaration


@dataclass(frozen=True)
class HybridSplit:
    """A split of one of the sources.

    Attributes:
        source: The index of the source.
        split: The split.
    """

    source: int
    split: Any

    @property
    def split_id(self) -> str:
        """The index of the source and the id of the split."""
        return f"{self.source}/{self.split.split_id}"


@dataclass(frozen=True)
class HybridState:
    """The index of the current source, and the state of its enumerator."""

    source: int
    state: Any


class HybridSource(Source[T_co, HybridSplit, HybridState], SupportsSplitReassignmentOnRecovery, Generic[T_co]):
    """Reads sources in sequence.

    When a source has been read completely, the enumerator of the next one is created. A micro-batch never contains
    records of two sources, so a restart continues on either side of the switch. Each source limits its own
    micro-batches.

    Args:
        sources: The sources. All except the last must be bounded.
        watermark_at_switch: A declaration whose watermark, with the value True, every reader emits at the beginning of
            the first micro-batch of the last source. An example is
            ``EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION``, to join by the wall clock from then on.

    Raises:
        ConfigurationError: There are fewer than two sources, or a source before the last is unbounded.

    Source: Flink ``HybridSource``.
    """

    def __init__(
        self, sources: Sequence[Source[T_co, Any, Any]], *, watermark_at_switch: BoolWatermarkDeclaration | None = None
    ) -> None:
        if len(sources) < 2:
            raise ConfigurationError(f"HybridSource requires at least two sources, got {len(sources)}.")
        for number, source in enumerate(sources[:-1]):
            if not source.bounded:
                raise ConfigurationError(
                    f"Source {number} of a HybridSource, a {type(source).__qualname__}, is unbounded, so the sources "
                    f"after it would never be read. Make it bounded, or put it last."
                )
        self.sources = tuple(sources)
        self.watermark_at_switch = watermark_at_switch

    @property
    def bounded(self) -> bool:
        return self.sources[-1].bounded

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        declared = [declaration for source in self.sources for declaration in source.declare_watermarks()]
        return declared if self.watermark_at_switch is None else [*declared, self.watermark_at_switch]

    @property
    def record_types(self) -> Collection[type]:
        return [kind for source in self.sources for kind in source.record_types]

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[HybridSplit], restored: HybridState | None, /
    ) -> SplitEnumerator[HybridSplit, HybridState]:
        return _Enumerator(self, ctx, restored)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, HybridSplit]:
        return _HybridReader(self.sources, ctx)

    def split_name(self, split: HybridSplit, /) -> SplitName:
        return f"{split.source}/{self.sources[split.source].split_name(split.split)}"

    def decode_again(self, value: Any, split: SplitName, /) -> SplitBatch[T_co]:
        source, _, inner = str(split).partition("/")
        return self.sources[int(source)].decode_again(value, inner)

    def describe_position(self, split: HybridSplit, /) -> str:
        return self.sources[split.source].describe_position(split.split)

    def has_read(self, split: HybridSplit, offset: Offset, /) -> bool:
        return self.sources[split.source].has_read(split.split, offset)

    @property
    def split_serializer(self) -> Serializer[HybridSplit]:
        return _Serializer(HybridSplit, "split", [source.split_serializer for source in self.sources])

    @property
    def enumerator_state_serializer(self) -> Serializer[HybridState]:
        return _Serializer(HybridState, "state", [source.enumerator_state_serializer for source in self.sources])


class _SourceContext:
    """The ``SplitEnumeratorContext`` of one source's enumerator."""

    def __init__(self, outer: SplitEnumeratorContext[HybridSplit], source: int, *, last: bool) -> None:
        self._outer = outer
        self._source = source
        self._last = last
        self._no_more_splits: set[int] = set()
        self.registered_readers: dict[int, ReaderInfo[Any]] = {}
        self.unfinished: set[str] = set()
        """The ids of the unfinished splits that readers hold."""

    @property
    def parallelism(self) -> int:
        """The number of readers."""
        return self._outer.parallelism

    @property
    def clock(self) -> Clock:
        """The job's clock."""
        return self._outer.clock

    @property
    def limit_per_batch(self) -> int | None:
        """The job's limit for the next micro-batch."""
        return self._outer.limit_per_batch

    @property
    def is_read(self) -> bool:
        """True if the source has been read completely."""
        return len(self._no_more_splits) == self.parallelism and not self.unfinished

    def assign_splits(self, assignment: Mapping[int, Sequence[Any]], /) -> None:
        """Assign splits to readers."""
        wrapped = {
            subtask: [HybridSplit(self._source, split) for split in splits] for subtask, splits in assignment.items()
        }
        self.unfinished.update(split.split_id for splits in assignment.values() for split in splits)
        self._outer.assign_splits(wrapped)

    def signal_no_more_splits(self, subtask: int, /) -> None:
        """Signal that this reader gets no more splits of this source."""
        self._no_more_splits.add(subtask)
        if self._last:
            self._outer.signal_no_more_splits(subtask)

    def emit_watermark(self, watermark: Watermark, /) -> None:
        """Emit a watermark from all readers."""
        self._outer.emit_watermark(watermark)


class _Enumerator(SplitEnumerator[HybridSplit, HybridState]):
    """Runs the enumerator of the current source."""

    def __init__(
        self, source: HybridSource[Any], ctx: SplitEnumeratorContext[HybridSplit], restored: HybridState | None
    ) -> None:
        self._hybrid = source
        self._ctx = ctx
        self._create(*((0, None) if restored is None else (restored.source, restored.state)))

    def _create(self, number: int, restored: Any) -> None:
        source = self._hybrid.sources[number]
        self._number = number
        self._inner_ctx = _SourceContext(self._ctx, number, last=number == len(self._hybrid.sources) - 1)
        self._inner: SplitEnumerator[Any, Any] = source.create_enumerator(self._inner_ctx, restored)

    def start(self) -> None:
        self._inner.start()

    def add_reader(self, reader: ReaderInfo[HybridSplit], /) -> None:
        held = tuple(split.split for split in reader.reported_splits_on_registration if split.source == self._number)
        reassigns = isinstance(self._hybrid.sources[self._number], SupportsSplitReassignmentOnRecovery)
        info = ReaderInfo(reader.subtask, held if reassigns else ())
        self._inner_ctx.registered_readers[reader.subtask] = info
        if held and not reassigns:
            self._inner_ctx.assign_splits({reader.subtask: held})
        self._inner.add_reader(info)

    def add_splits_back(self, splits: Sequence[HybridSplit], subtask: int, /) -> None:
        self._inner_ctx.registered_readers.pop(subtask, None)
        back = [split.split for split in splits if split.source == self._number]
        self._inner.add_splits_back(back, subtask)

    def refresh(self) -> None:
        self._inner.refresh()
        self._switch_when_read()

    def hand_out(self) -> None:
        self._inner.hand_out()
        self._switch_when_read()

    def _switch_when_read(self) -> None:
        while self._inner_ctx.is_read and self._number + 1 < len(self._hybrid.sources):
            self._switch()

    def _switch(self) -> None:
        self._inner.close()
        self._create(self._number + 1, None)
        self._inner.start()
        for subtask in sorted(self._ctx.registered_readers):
            self.add_reader(ReaderInfo(subtask))
        self._inner.refresh()
        declaration = self._hybrid.watermark_at_switch
        if declaration is not None and self._number == len(self._hybrid.sources) - 1:
            self._ctx.emit_watermark(declaration.new_watermark(True))

    @property
    def limit_per_batch(self) -> int | None:
        return self._inner.limit_per_batch

    @property
    def least_per_batch(self) -> int:
        return self._inner.least_per_batch

    @property
    def can_pause_splits(self) -> bool:
        return self._inner.can_pause_splits

    def advance(self, split: HybridSplit, limit: int | None, /) -> Portion[HybridSplit] | None:
        portion = self._inner.advance(split.split, limit)
        if portion is None:
            return None
        if portion.last:
            self._inner_ctx.unfinished.discard(split.split.split_id)
        return Portion(replace(split, split=portion.stop), portion.size, portion.last)

    def pause_or_resume_splits(
        self, splits_to_pause: Sequence[HybridSplit], splits_to_resume: Sequence[HybridSplit], /
    ) -> None:
        """See ``SupportsPauseOrResumeSplits.pause_or_resume_splits``. Requires that the current source supports it."""
        assert isinstance(self._inner, SupportsPauseOrResumeSplits)
        self._inner.pause_or_resume_splits(
            [split.split for split in splits_to_pause], [split.split for split in splits_to_resume]
        )

    def lag(self, split: HybridSplit, /) -> int | None:
        return self._inner.lag(split.split) if split.source == self._number else None

    def wait(self, splits: Sequence[HybridSplit], timeout: timedelta, /) -> bool | None:
        return self._inner.wait([split.split for split in splits if split.source == self._number], timeout)

    def snapshot_state(self) -> HybridState:
        return HybridState(self._number, self._inner.snapshot_state())

    def notify_checkpoint_complete(self, splits: Sequence[HybridSplit], /) -> None:
        self._inner.notify_checkpoint_complete([split.split for split in splits if split.source == self._number])

    def close(self) -> None:
        self._inner.close()


class _HybridReader(SourceReader[T_co, HybridSplit], Generic[T_co]):
    """Reads each portion with a reader of its source."""

    def __init__(self, sources: Sequence[Source[T_co, Any, Any]], ctx: SourceReaderContext) -> None:
        self._sources = sources
        self._ctx = ctx
        self._readers: dict[int, SourceReader[T_co, Any]] = {}

    def read(self, start: HybridSplit, stop: HybridSplit, /) -> Iterator[RecordBatch[T_co]]:
        reader = self._readers.get(start.source)
        if reader is None:
            reader = self._readers[start.source] = self._sources[start.source].create_reader(self._ctx)
        return reader.read(start.split, stop.split)

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()


class _Serializer(Generic[T]):
    """Serializes ``kind``, a source's index and a value, which is a split or a state of this source."""

    def __init__(self, kind: Callable[[int, Any], T], field: str, of_sources: Sequence[Serializer[Any]]) -> None:
        self._kind = kind
        self._field = field
        self._of_sources = of_sources

    def to_json(self, value: Any, /) -> JsonValue:
        inner = self._of_sources[value.source].to_json(getattr(value, self._field))
        return {"source": value.source, self._field: inner}

    def from_json(self, json: JsonValue, /) -> T:
        match json:
            case {"source": int(source), self._field: inner} if source < len(self._of_sources):
                return self._kind(source, self._of_sources[source].from_json(inner))
        raise CorruptDataError(f"{json} is not a {self._field} of a HybridSource of {len(self._of_sources)} sources.")
