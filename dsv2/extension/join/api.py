"""The functions that create joins: ``join`` (Flink ``BuiltinFuncs.join``), interval, window and temporal joins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic, Literal, TypedDict, Unpack, overload

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.checks.arguments import as_choice, as_milliseconds
from dsv2.errors import ConfigurationError
from dsv2.extension.join.functions import Joining, JoinType, JoinTypeChoice, LateRecord, as_join_function, check_late
from dsv2.extension.join.interval import new_interval_join
from dsv2.extension.join.temporal import OnSnapshotTimeout, TemporalJoin
from dsv2.extension.join.unbounded import UnboundedJoin
from dsv2.extension.join.windowed import ExistenceInWindow, JoinInWindow, WindowJoin
from dsv2.extension.window import WindowStrategy
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.state import StateTtl


class _LateCallbacks(TypedDict, Generic[IN1, IN2, OUT], total=False):
    """The callbacks for late records, see ``interval_join``."""

    on_late_left: LateRecord[IN1, OUT] | None
    on_late_right: LateRecord[IN2, OUT] | None


def join(
    function: Joining[IN1, IN2, OUT], join_type: JoinTypeChoice = JoinType.INNER, *, ttl: StateTtl | None = None
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]:
    """Join every record with all records of the other side with an equal key.

    Use it as ``keyed.connect_and_process(other_keyed, join(function))``, also with a key selector that keeps the result
    keyed. A result has the timestamp of the record that arrived later.

    Args:
        function: Called with every pair.
        join_type: Only INNER is possible, because a partner may still arrive at any time.
        ttl: How long, in processing time, each record is kept. None (default): forever.

    Raises:
        ConfigurationError: ``join_type`` is not INNER, or ``function`` cannot be called with a pair.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    if chosen is not JoinType.INNER:
        raise ConfigurationError(
            f"join_type of join must be INNER, not {chosen}, because a partner may still arrive at any time. Use "
            f"interval_join or window_join, which stop waiting by event time."
        )
    return UnboundedJoin(as_join_function(function), ttl)


@overload
def interval_join(
    function: Joining[IN1, IN2, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1, IN2 | None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.LEFT, "left"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1 | None, IN2, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.RIGHT, "right"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1 | None, IN2 | None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.FULL, "full"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def interval_join(
    function: Joining[IN1, None, OUT],
    lower: timedelta,
    upper: timedelta,
    join_type: Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
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
    """Join records with equal keys and timestamps in an interval: ``left + lower <= right <= left + upper``.

    Use it as ``keyed.connect_and_process(other_keyed, interval_join(...))``, also with a key selector that keeps the
    result keyed. Partners are joined in the order of their timestamps. The results of a pair have the greater timestamp
    of the two. A record is late if event time has reached its timestamp.

    Args:
        function: Called with every pair, and with None in place of a missing partner.
        lower: The lower bound relative to the left timestamp. Negative: before the left record.
        upper: The upper bound relative to the left timestamp.
        join_type: Which records the function is called with, see ``JoinType``. A record without a partner is joined
            with None once event time excludes further partners. The result has that event time as timestamp, or that
            of the record if it is greater, so it is not late downstream. SEMI emits a left record with its first
            partner.
        on_late_left: Called with (record, output, ctx) for late left records. None (default): they are dropped and
            counted in the metric ``late_records_dropped``.
        on_late_right: The same for late right records.

    Raises:
        ConfigurationError: ``lower`` exceeds ``upper``, a bound is not a duration in whole milliseconds, or a callable
            does not accept a pair or a late record.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    earliest, latest = as_milliseconds(lower, "lower"), as_milliseconds(upper, "upper")
    if earliest > latest:
        raise ConfigurationError(f"lower must not exceed upper: lower is {earliest} ms and upper is {latest} ms.")
    check_late(on_late_left=on_late_left, on_late_right=on_late_right)
    return new_interval_join(as_join_function(function), chosen, earliest, latest, on_late_left, on_late_right)


@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, IN2, OUT],
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, IN2 | None, OUT],
    join_type: Literal[JoinType.LEFT, "left"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1 | None, IN2, OUT],
    join_type: Literal[JoinType.RIGHT, "right"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1 | None, IN2 | None, OUT],
    join_type: Literal[JoinType.FULL, "full"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window_join(
    strategy: WindowStrategy,
    function: Joining[IN1, None, OUT],
    join_type: Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def window_join(
    strategy: WindowStrategy,
    function: Joining[Any, Any, Any],
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    on_late_left: LateRecord[Any, Any] | None = None,
    on_late_right: LateRecord[Any, Any] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join records with equal keys in the same window.

    Use it as ``keyed.connect_and_process(other_keyed, window_join(...))``, also with a key selector that keeps the
    result keyed. A window is joined when it fires. Its results have the last ms of the window as timestamp. A window
    that fires several times, early or for allowed late records, joins all of its records each time. A record is late
    if its windows have been removed.

    Args:
        strategy: The windows.
        function: Called with every pair, and with None in place of a missing partner.
        join_type: Which records the function is called with, see ``JoinType``. Partners are in the same window.
        on_late_left: Called with (record, output, ctx) for late left records. None (default): they are dropped and
            counted in the metric ``late_records_dropped``.
        on_late_right: The same for late right records.

    Raises:
        ConfigurationError: ``strategy`` is not a window strategy, or a callable does not accept a pair or a late
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
    """Join each record of the left (probe) side with the latest row of its key on the right (build) side.

    Use it as ``probes.connect_and_process(rows, processing_time_temporal_join(...))`` on keyed streams, also with a key
    selector that keeps the result keyed. The build side is the changelog of a table: a snapshot, then changes
    (FLIP-326). Probe records are buffered in order until the snapshot is complete. Then each is joined on arrival with
    the current row. Results have the timestamp of the probe record. The counter ``probe_records_waiting`` shows the
    number of buffered probe records.

    The snapshot is complete when every subtask of the build side has emitted the watermark
    ``EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION.new_watermark(True)``, or has ended.

    Args:
        function: Called with a probe record and a row.
        join_type: INNER, or LEFT, which joins a probe record without a row with None.
        is_deletion: Whether a row of the build side deletes the row of its key. None (default): rows are not deleted.
        snapshot_timeout: How long probe records may be buffered by the wall clock, at least 1 ms. Default: 10 minutes.
        on_snapshot_timeout: Then ``"fail"`` fails the job; ``"warn"`` (default) logs a warning and increments the
            counter ``snapshot_timeouts``, again each time the timeout passes.

    Raises:
        ConfigurationError: ``join_type`` is neither INNER nor LEFT, ``snapshot_timeout`` is out of range, or a callable
            does not accept its arguments.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    if chosen not in (JoinType.INNER, JoinType.LEFT):
        raise ConfigurationError(
            f"join_type of processing_time_temporal_join must be INNER or LEFT, not {chosen}, because left records are "
            f"joined on arrival and right records do not wait for them."
        )
    if is_deletion is not None and not takes(is_deletion, 1):
        raise ConfigurationError(f"is_deletion must be a callable (row) -> bool, not {is_deletion!r}.")
    timeout = as_milliseconds(snapshot_timeout, "snapshot_timeout", at_least=1)
    on_timeout = as_choice(OnSnapshotTimeout, on_snapshot_timeout, "on_snapshot_timeout")
    return TemporalJoin(as_join_function(function), chosen, is_deletion, timeout, on_timeout)
