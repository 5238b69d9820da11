"""The modes of a join: the records of the two sides that are partners, and how long they wait for each other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Literal

from dsv2.checks.arguments import as_choice, as_milliseconds, check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.extension.window import TimeType, WindowStrategy
from dsv2.extension.window.strategy import SlidingWindowStrategy, TimeTypeChoice
from dsv2.state import StateTtl


class OnSnapshotTimeout(Enum):
    """The consequence when probe records wait too long for the snapshot of the build side."""

    WARN = "warn"
    FAIL = "fail"


class JoinMode:
    """The records with equal keys that are partners. Create a mode with one of the static methods.

    They raise ``ConfigurationError`` for an argument that is out of range.
    """

    @staticmethod
    def unbounded(ttl: StateTtl | None = None) -> UnboundedMode:
        """All records are partners. A result has the timestamp of the record that arrived later.

        Args:
            ttl: How long, in processing time, each record is kept. None (default): forever.
        """
        return UnboundedMode(ttl)

    @staticmethod
    def interval(lower: timedelta, upper: timedelta | str, time_type: TimeTypeChoice = TimeType.EVENT) -> IntervalMode:
        """Records with timestamps in an interval are partners: ``left + lower <= right <= left + upper``.

        If ``upper`` is the name of a field, the interval ends with the time in this field of the left record, such as
        the end of an auction. Such a join requires a class of results and runs on columns only.

        Partners are joined in the order of their timestamps. The results of a pair have the greater timestamp of the
        two. A record without a partner is joined with None once event time excludes further partners. The result has
        that event time as timestamp, or that of the record if it is greater, so it is not late downstream. SEMI emits
        a left record with its first partner. A record is late if event time has reached its timestamp.

        Args:
            lower: The lower bound relative to the left timestamp. Negative: before the left record.
            upper: The upper bound relative to the left timestamp, or the name of a field of the left records with the
                last time of partners, an int in ms.
            time_type: In processing time, the time of arrival takes the place of all timestamps, also of those of the
                results. Then no record is late.
        """
        earliest = as_milliseconds(lower, "lower")
        by_clock = as_choice(TimeType, time_type, "time_type") is TimeType.PROCESSING
        if isinstance(upper, str):
            if by_clock:
                raise ConfigurationError("An interval that ends with a field of the left records is in event time.")
            return IntervalMode(earliest, upper)
        latest = as_milliseconds(upper, "upper")
        if earliest > latest:
            raise ConfigurationError(f"lower must not exceed upper: lower is {earliest} ms and upper is {latest} ms.")
        return IntervalMode(earliest, latest, by_clock)

    @staticmethod
    def window(strategy: WindowStrategy, *, running: bool = False) -> WindowMode:
        """Records in the same window are partners. A window is joined when it fires.

        Its results have the last ms of the window as timestamp. A window that fires several times, early or for allowed
        late records, joins all of its records each time. A record is late if its windows have been removed.

        Args:
            strategy: The windows.
            running: Whether a pair is joined as soon as its second record arrives. The result has the timestamp of that
                record. Records without a partner are joined when the window fires. The windows must be tumbling or
                sliding ones that fire once, at their end.
        """
        if not isinstance(strategy, WindowStrategy):
            raise ConfigurationError(
                f"window takes a WindowStrategy, such as WindowStrategy.tumbling(size), not {strategy!r}."
            )
        if running and not _fires_at_its_end(strategy):
            raise ConfigurationError(
                f"A running join requires tumbling or sliding windows without allowed lateness, early firing or a "
                f"trigger, not {strategy.layout}."
            )
        return WindowMode(strategy, running)

    @staticmethod
    def temporal(
        snapshot_timeout: timedelta = timedelta(minutes=10),
        on_snapshot_timeout: OnSnapshotTimeout | Literal["warn", "fail"] = OnSnapshotTimeout.WARN,
        *,
        complete_at: int | None = None,
        complete_when_idle: bool = False,
        ttl: StateTtl | None = None,
    ) -> TemporalMode:
        """The partner of a left (probe) record is the latest row of its key on the right (build) side.

        With ``row_key`` of ``join``, a key has several rows, and all of them are partners.

        The build side is the changelog of a table: a snapshot, then changes (FLIP-326). Probe records are buffered in
        order until the snapshot is complete. Then each is joined on arrival with the current row. Results have the
        timestamp of the probe record. The counter ``probe_records_waiting`` shows the number of buffered records.

        The snapshot is complete when every subtask of the build side has emitted the watermark
        ``EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True)``, or has ended. For sources
        that do neither, ``complete_at`` and ``complete_when_idle`` are further conditions, as in Flink's ``LATERAL
        SNAPSHOT`` join. The first one that is met counts.

        Args:
            snapshot_timeout: How long probe records may be buffered by the wall clock, at least 1 ms.
            on_snapshot_timeout: Then ``"fail"`` fails the job; ``"warn"`` logs a warning and increments the counter
                ``snapshot_timeouts``, again each time the timeout passes.
            complete_at: The snapshot is complete when event time of the build side has reached this time in ms, such as
                the start of the job. None (default): this completes no snapshot.
            complete_when_idle: Whether it is complete when the build side is idle (``with_idleness`` of its generator).
            ttl: How long each row is kept. None (default): until it is deleted.
        """
        timeout = as_milliseconds(snapshot_timeout, "snapshot_timeout", at_least=1)
        if complete_at is not None:
            check_whole_number(complete_at, "complete_at", at_least=0)
        on_timeout = as_choice(OnSnapshotTimeout, on_snapshot_timeout, "on_snapshot_timeout")
        return TemporalMode(timeout, on_timeout, complete_at, complete_when_idle, ttl)

    @staticmethod
    def versioned(ttl: StateTtl | None = None) -> VersionedMode:
        """The partner of a left record is the version of its key that was valid at its time.

        Right records are versions, valid from their timestamps until the next one of their key. It is the join of Flink
        SQL with a versioned table, ``FOR SYSTEM_TIME AS OF`` the time of the left record.

        A left record waits until event time has reached its timestamp, which is also that of its results. It is late
        if event time had reached it before. Of the versions up to event time, the last one of each key is kept. A
        version is late if a newer one is kept.

        Args:
            ttl: How long, in processing time, the versions of a key are kept after one arrived or became valid, or with
                ``TtlUpdate.ON_READ_AND_WRITE`` was last used. None (default): the last one is kept forever.
        """
        return VersionedMode(ttl)


@dataclass(frozen=True)
class UnboundedMode(JoinMode):
    """The mode of ``JoinMode.unbounded``."""

    ttl: StateTtl | None = None


@dataclass(frozen=True)
class IntervalMode(JoinMode):
    """The mode of ``JoinMode.interval``. The bounds are in ms; the upper one may be a field."""

    lower: int
    upper: int | str
    by_clock: bool = False


@dataclass(frozen=True)
class WindowMode(JoinMode):
    """The mode of ``JoinMode.window``."""

    strategy: WindowStrategy
    running: bool = False


@dataclass(frozen=True)
class TemporalMode(JoinMode):
    """The mode of ``JoinMode.temporal``. The timeout is in ms."""

    timeout: int
    on_timeout: OnSnapshotTimeout
    complete_at: int | None
    complete_when_idle: bool
    ttl: StateTtl | None


@dataclass(frozen=True)
class VersionedMode(JoinMode):
    """The mode of ``JoinMode.versioned``."""

    ttl: StateTtl | None = None


def _fires_at_its_end(strategy: WindowStrategy) -> bool:
    is_plain = type(strategy) is SlidingWindowStrategy and not strategy.allowed_lateness
    return is_plain and strategy.early_firing is None and strategy.trigger is None
