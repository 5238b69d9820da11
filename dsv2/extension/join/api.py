"""The ways in: ``join`` and its short forms (Flink ``BuiltinFuncs.join``), and the other joins."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any, Literal, TypeVar, overload

from dsv2.arguments import as_choice, as_milliseconds
from dsv2.callables import takes
from dsv2.errors import ConfigurationError
from dsv2.extension.join.functions import Joining, JoinType, JoinTypeChoice, LateRecord, as_join_function, check_late
from dsv2.extension.join.interval import new_interval_join
from dsv2.extension.join.temporal import OnSnapshotTimeout, TemporalJoin
from dsv2.extension.join.unbounded import UnboundedJoin
from dsv2.extension.join.windowed import ExistenceInWindow, JoinInWindow, WindowJoin
from dsv2.extension.window import WindowStrategy
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.state import StateTtl
from dsv2.streams import (
    ConfiguredStream,
    KeyedPartitionStream,
    NonKeyedPartitionStream,
)

__all__ = ("interval_join", "join", "join_by_key", "join_keyed", "processing_time_temporal_join", "window_join")

K = TypeVar("K", bound=Hashable)
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


def join(
    function: Joining[IN1, IN2, OUT], join_type: JoinTypeChoice = JoinType.INNER, *, ttl: StateTtl | None = None
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]:
    """Join every record with every record of the other side that has an equal key, whenever that comes.

    For ``keyed.connect_and_process(other_keyed, join(function))``, also with a key selector that keeps the result
    keyed. A result has the timestamp of the record that came later.

    Both sides are kept for ever, or, with ``ttl``, each record for so long, in processing time. So a record is never
    known to have no partner, and ``join_type`` can only be INNER. Raises ``ConfigurationError`` for another one, and
    for a ``function`` that cannot be called with a pair.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    if chosen is not JoinType.INNER:
        raise ConfigurationError(
            f"join always waits for more partners and never knows that a record has none, so it is INNER only, not "
            f"{chosen}. Use interval_join or window_join, which end the wait by event time."
        )
    return UnboundedJoin(as_join_function(function), ttl)


def join_keyed(
    left: KeyedPartitionStream[K, IN1],
    right: KeyedPartitionStream[K, IN2],
    function: Joining[IN1, IN2, OUT],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    ttl: StateTtl | None = None,
) -> ConfiguredStream[OUT]:
    """``left.connect_and_process(right, join(function, join_type, ttl=ttl))``."""
    return left.connect_and_process(right, join(function, join_type, ttl=ttl)).with_name("Keyed-Join-Process")


def join_by_key(
    left: NonKeyedPartitionStream[IN1],
    left_key: Callable[[IN1], K],
    right: NonKeyedPartitionStream[IN2],
    right_key: Callable[[IN2], K],
    function: Joining[IN1, IN2, OUT],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    ttl: StateTtl | None = None,
    version: int | None = None,
) -> ConfiguredStream[OUT]:
    """``join_keyed`` of two streams that are keyed first. ``version``: of both key selectors, as in ``key_by``."""
    left_keyed, right_keyed = left.key_by(left_key, version=version), right.key_by(right_key, version=version)
    return join_keyed(left_keyed, right_keyed, function, join_type, ttl=ttl)


@overload
def interval_join(
    function: Joining[IN1, IN2, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1, IN2 | None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1 | None, IN2, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.RIGHT, "right"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1 | None, IN2 | None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.FULL, "full"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1, None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def interval_join(
    function: Joining[Any, Any, Any],
    lower: timedelta,
    upper: timedelta,
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    on_late_left: LateRecord[Any, Any] | None = None,
    on_late_right: LateRecord[Any, Any] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join records with equal keys whose timestamps fit: ``left + lower <= right <= left + upper``.

    For ``keyed.connect_and_process(other_keyed, interval_join(...))``, also with a key selector that keeps the result
    keyed. ``lower`` and ``upper`` are negative for the time before the left record.
    Partners come in the order of their timestamps. A pair's results have the later timestamp of the two.

    ``join_type``: which records the function gets, see ``JoinType``. One without a partner is joined with None as soon
    as event time says that none can come; the result has that time as timestamp (or the record's own, if that is
    later), so it is not late downstream. SEMI gives a left record when it meets its first partner.

    A record is late if event time has reached its timestamp. Late ones are dropped, and counted as the metric
    ``late_records_dropped``, or given to ``on_late_left`` and ``on_late_right`` as (record, output, ctx).

    Raises ``ConfigurationError`` for bounds that no pair can fit or that are not whole milliseconds, and for what
    cannot be called with a pair or a late record.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    earliest, latest = as_milliseconds(lower, "lower"), as_milliseconds(upper, "upper")
    if earliest > latest:
        raise ConfigurationError(f"No timestamp is between lower ({earliest} ms) and upper ({latest} ms).")
    check_late(on_late_left=on_late_left, on_late_right=on_late_right)
    return new_interval_join(as_join_function(function), chosen, earliest, latest, on_late_left, on_late_right)


@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, IN2, OUT],
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, IN2 | None, OUT],
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1 | None, IN2, OUT],
    join_type: Literal[JoinType.RIGHT, "right"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1 | None, IN2 | None, OUT],
    join_type: Literal[JoinType.FULL, "full"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, None, OUT],
    join_type: Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"],
    *,
    on_late_left: LateRecord[IN1, OUT] | None = None,
    on_late_right: LateRecord[IN2, OUT] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def window_join(
    strategy: WindowStrategy,
    function: Joining[Any, Any, Any],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    on_late_left: LateRecord[Any, Any] | None = None,
    on_late_right: LateRecord[Any, Any] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join records with equal keys that are in the same window.

    For ``keyed.connect_and_process(other_keyed, window_join(...))``, also with a key selector that keeps the result
    keyed. A window joins when it fires, and its results have its last ms as timestamp. Should it fire several times
    (early, or for records that are late but allowed), it joins all it has each time.

    ``join_type``: which records the function gets, see ``JoinType``; a partner is one in the same window. Late records
    (of windows that are gone) are dropped, and counted as the metric ``late_records_dropped``, or given to
    ``on_late_left`` and ``on_late_right`` as (record, output, ctx).

    Raises ``ConfigurationError`` for what is not a window strategy, and for what cannot be called with a pair or a late
    record.
    """
    if not isinstance(strategy, WindowStrategy):
        raise ConfigurationError(
            f"window_join takes a WindowStrategy, such as WindowStrategy.tumbling(size), not {strategy!r}."
        )
    chosen = as_choice(JoinType, join_type, "join_type")
    check_late(on_late_left=on_late_left, on_late_right=on_late_right)
    kind = ExistenceInWindow if chosen in (JoinType.SEMI, JoinType.ANTI) else JoinInWindow
    return WindowJoin(strategy, kind(as_join_function(function), chosen, on_late_left, on_late_right))


@overload
def processing_time_temporal_join(
    function: Joining[IN1, IN2, OUT],
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
    snapshot_timeout: timedelta = ...,
    on_snapshot_timeout: OnSnapshotTimeout | Literal["warn", "fail"] = OnSnapshotTimeout.WARN,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def processing_time_temporal_join(
    function: Joining[IN1, IN2 | None, OUT],
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
    snapshot_timeout: timedelta = ...,
    on_snapshot_timeout: OnSnapshotTimeout | Literal["warn", "fail"] = OnSnapshotTimeout.WARN,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def processing_time_temporal_join(
    function: Joining[Any, Any, Any],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    is_deletion: Callable[[Any], bool] | None = None,
    snapshot_timeout: timedelta = timedelta(minutes=10),
    on_snapshot_timeout: OnSnapshotTimeout | Literal["warn", "fail"] = OnSnapshotTimeout.WARN,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join each record of the left side, the probe side, with the latest row of its key on the right, the build side.

    For ``probes.connect_and_process(rows, processing_time_temporal_join(...))``, both keyed, also with a key selector
    that keeps the result keyed. The build side tells of a table: a snapshot first, then changes (FLIP-326). Probe
    records wait, in their order, until its snapshot is over; then each is joined as soon as it comes, with the row of
    that moment. Results have the timestamp of the probe record.

    The snapshot is over when all of the build side has emitted the watermark
    ``EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True)``, or has ended.

    ``join_type``: INNER, or LEFT, for which a probe record without a row is joined with None. ``is_deletion(row)``:
    whether a row of the build side takes that of its key away. ``snapshot_timeout``: how long, by the wall clock, probe
    records may wait. Then ``on_snapshot_timeout`` says whether the job fails, or a warning is logged (and
    ``snapshot_timeouts`` counted) each time this span has passed. The counter ``probe_records_waiting`` is how many
    wait now.

    Raises ``ConfigurationError`` for another join type, a timeout of less than 1 ms, and for callables that are none.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    if chosen not in (JoinType.INNER, JoinType.LEFT):
        raise ConfigurationError(
            f"processing_time_temporal_join joins the left records when they come, and the right ones never wait for "
            f"them, so it is INNER or LEFT, not {chosen}."
        )
    if is_deletion is not None and not takes(is_deletion, 1):
        raise ConfigurationError(f"is_deletion is a callable (row) -> bool, not {is_deletion!r}.")
    timeout = as_milliseconds(snapshot_timeout, "snapshot_timeout", at_least=1)
    on_timeout = as_choice(OnSnapshotTimeout, on_snapshot_timeout, "on_snapshot_timeout")
    return TemporalJoin(as_join_function(function), chosen, is_deletion, timeout, on_timeout)
