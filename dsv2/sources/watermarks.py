"""Event time in a source with splits: each split for itself, and sources together (FLIP-182, FLIP-217)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

from dsv2.arguments import as_milliseconds
from dsv2.errors import ConfigurationError
from dsv2.watermark import WatermarkDeclaration

__all__ = ("WatermarkAlignment", "WatermarkStrategy")

T_contra = TypeVar("T_contra", contravariant=True)


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Sources of one ``group`` stay within ``max_drift_ms`` of the slowest, as seen every ``interval_ms``."""

    group: str
    max_drift_ms: int
    interval_ms: int
    allow_unaligned_splits: bool


@dataclass(frozen=True)
class WatermarkStrategy(Generic[T_contra]):
    """How a source tells event time. Made by ``WatermarkStrategyBuilder.build_as_watermark_strategy``.

    ``extract_timestamp(record)``: its event time in ms; None: the timestamps are those that the source gives its
    records (Flink's strategies without ``withTimestampAssigner``). A split's watermark is its greatest timestamp less
    ``behind_ms``; that of a reader is the least of its splits, without those that are idle: that have had nothing to
    read for ``idle_after_ms`` (0: never). ``per_event``: it is sent behind every record that moves it, else once in a
    micro-batch; if ``emits`` is False event time is the wall clock instead. ``declarations``: of the watermarks that
    come of it.
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
        """This strategy, for a source of which splits that are ahead of others in event time are not read for now.

        ``group``: sources of the job with the same name wait for each other. ``max_drift``: how far a split may be
        ahead of the slowest split of the group; within a micro-batch it may get further, by what it is given to read.
        ``update_interval``: how often the slowest is looked at. Idle splits hold nobody back.
        ``allow_unaligned_splits``: a source that cannot pause single splits pauses whole readers; else it fails when a
        reader has several (Flink ``pipeline.watermark-alignment.allow-unaligned-source-splits``).
        Raises ``ConfigurationError`` for time spans that make no sense, or without watermarks. BATCH jobs do not align.
        """
        drift = as_milliseconds(max_drift, "max_drift", at_least=0)
        interval = as_milliseconds(update_interval, "update_interval", at_least=1)
        if not self.emits:
            raise ConfigurationError("Watermarks cannot be aligned where there are none: take no_watermark() back.")
        return replace(self, alignment=WatermarkAlignment(group, drift, interval, allow_unaligned_splits))
