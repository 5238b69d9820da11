"""Event time of sources with splits: watermarks per split, and alignment of sources (FLIP-182, FLIP-217)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic

from dsv2.base.type_variables import T_contra
from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import ConfigurationError
from dsv2.watermark import WatermarkDeclaration


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """The alignment of a group of sources.

    Attributes:
        group: The name of the group.
        max_drift_ms: How far a split may be ahead of the slowest one of the group, in ms.
        interval_ms: How often the slowest split is determined, in ms.
        allow_unaligned_splits: Whether a source that cannot pause single splits pauses whole readers instead.
    """

    group: str
    max_drift_ms: int
    interval_ms: int
    allow_unaligned_splits: bool


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T_contra]):
    """A source's generation of event-time watermarks.

    Created by ``WatermarkStrategyBuilder.build_as_watermark_strategy``.

    The watermark of a split is its maximum timestamp minus ``behind_ms``. The watermark of a reader is the minimum of
    its active splits.

    Attributes:
        extract_timestamp: Returns the event time of a record in ms. None: the source provides the timestamps (Flink's
            strategies without ``withTimestampAssigner``).
        behind_ms: How far watermarks are behind the maximum timestamp, in ms.
        idle_after_ms: After how many ms without records a split is idle. 0: never.
        emits: Whether to emit watermarks. If False, event time is the wall clock.
        per_event: Whether to emit a watermark after every record that advances it, instead of once per micro-batch.
        alignment: The alignment with other sources, if there is any.
        declarations: The declarations of the emitted watermarks.
    """

    extract_timestamp: Callable[[T_contra], int] | None
    behind_ms: int
    idle_after_ms: int = 0
    emits: bool = True
    per_event: bool = False
    alignment: WatermarkAlignment | None = None
    declarations: tuple[WatermarkDeclaration, ...] = ()

    def with_watermark_alignment(
        self,
        group: str,
        max_drift: timedelta,
        update_interval: timedelta = timedelta(seconds=1),
        *,
        allow_unaligned_splits: bool = False,
    ) -> WatermarkStrategy[T_contra]:
        """Return a strategy that pauses splits that are too far ahead in event time. BATCH jobs are not aligned.

        Args:
            group: The name of the group. Sources of the job with the same name are aligned.
            max_drift: How far a split may be ahead of the slowest active split of the group. The portion of one
                micro-batch may exceed it.
            update_interval: How often the slowest split is determined.
            allow_unaligned_splits: Whether a source that cannot pause single splits pauses whole readers. Otherwise it
                fails if a reader has several splits (Flink
                ``pipeline.watermark-alignment.allow-unaligned-source-splits``).

        Raises:
            ConfigurationError: A duration is invalid, or the strategy emits no watermarks.
        """
        drift = as_milliseconds(max_drift, "max_drift", at_least=0)
        interval = as_milliseconds(update_interval, "update_interval", at_least=1)
        if not self.emits:
            raise ConfigurationError("Watermark alignment requires watermarks. Remove no_watermark() from the builder.")
        return replace(self, alignment=WatermarkAlignment(group, drift, interval, allow_unaligned_splits))
