"""``join``, which creates the joins of two keyed streams (Flink ``BuiltinFuncs.join``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Literal, TypeAlias, TypedDict, Unpack, overload

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.checks.arguments import as_choice
from dsv2.errors import ConfigurationError
from dsv2.extension.join.functions import Joining, JoinType, JoinTypeChoice, LateRecord, as_join_function, check_late
from dsv2.extension.join.interval import new_interval_join
from dsv2.extension.join.modes import IntervalMode, JoinMode, TemporalMode, UnboundedMode, WindowMode
from dsv2.extension.join.temporal import TemporalJoin
from dsv2.extension.join.unbounded import UnboundedJoin
from dsv2.extension.join.windowed import ExistenceInWindow, JoinInWindow, WindowJoin
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction

_EventTimeMode: TypeAlias = IntervalMode | WindowMode
_UNBOUNDED = JoinMode.unbounded()


class _LateCallbacks(TypedDict, Generic[IN1, IN2, OUT], total=False):
    """The callbacks for late records, see ``join``."""

    on_late_left: LateRecord[IN1, OUT] | None
    on_late_right: LateRecord[IN2, OUT] | None


@overload
def join(
    function: Joining[IN1, IN2, OUT],
    mode: UnboundedMode = ...,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2, OUT],
    mode: TemporalMode,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2 | None, OUT],
    mode: TemporalMode,
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2, OUT],
    mode: _EventTimeMode,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2 | None, OUT],
    mode: _EventTimeMode,
    join_type: Literal[JoinType.LEFT, "left"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1 | None, IN2, OUT],
    mode: _EventTimeMode,
    join_type: Literal[JoinType.RIGHT, "right"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1 | None, IN2 | None, OUT],
    mode: _EventTimeMode,
    join_type: Literal[JoinType.FULL, "full"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, None, OUT],
    mode: _EventTimeMode,
    join_type: Literal[JoinType.SEMI, JoinType.ANTI, "semi", "anti"],
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def join(
    function: Joining[Any, Any, Any],
    mode: JoinMode = _UNBOUNDED,
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    is_deletion: Callable[[Any], bool] | None = None,
    on_late_left: LateRecord[Any, Any] | None = None,
    on_late_right: LateRecord[Any, Any] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join records with equal keys.

    Use it as ``keyed.connect_and_process(other_keyed, join(...))``, also with a key selector that keeps the result
    keyed.

    Args:
        function: Called with every pair of partners, and with None in place of a missing partner.
        mode: The records that are partners, see ``JoinMode``. Default: all.
        join_type: Which records the function is called with, see ``JoinType``. Without bounds only INNER is possible,
            because a partner may still arrive at any time. A temporal join can be INNER, or LEFT, which joins a probe
            record without a row with None.
        is_deletion: Of a temporal join: whether a row deletes the row of its key. None (default): no row does.
        on_late_left: In intervals and windows, called with (record, output, ctx) for late left records. None
            (default): they are dropped and counted in the metric ``late_records_dropped``.
        on_late_right: The same for late right records.

    Raises:
        ConfigurationError: The mode does not have this join type or callable, or a callable does not accept its
            arguments.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    given = {"is_deletion": is_deletion, "on_late_left": on_late_left, "on_late_right": on_late_right}
    match mode:
        case UnboundedMode(ttl=ttl):
            _refuse("an unbounded join", given)
            _check_type(chosen, "an unbounded join", (JoinType.INNER,), _MAY_ARRIVE)
            return UnboundedJoin(as_join_function(function), ttl)
        case TemporalMode(timeout=timeout, on_timeout=on_timeout):
            del given["is_deletion"]
            _refuse("a temporal join", given)
            _check_type(chosen, "a temporal join", (JoinType.INNER, JoinType.LEFT), _ON_ARRIVAL)
            if is_deletion is not None and not takes(is_deletion, 1):
                raise ConfigurationError(f"is_deletion must be a callable (row) -> bool, not {is_deletion!r}.")
            return TemporalJoin(as_join_function(function), chosen, is_deletion, timeout, on_timeout)
    check_late(on_late_left=on_late_left, on_late_right=on_late_right)
    _refuse("a join in intervals or windows", {"is_deletion": is_deletion})
    match mode:
        case IntervalMode(lower=lower, upper=upper):
            pairs = as_join_function(function)
            return new_interval_join(pairs, chosen, lower, upper, on_late_left, on_late_right)
        case WindowMode(strategy=strategy):
            kind = ExistenceInWindow if chosen in (JoinType.SEMI, JoinType.ANTI) else JoinInWindow
            return WindowJoin(strategy, kind(as_join_function(function), chosen, on_late_left, on_late_right))
    raise ConfigurationError(f"mode must be a JoinMode, such as JoinMode.interval(lower, upper), not {mode!r}.")


_MAY_ARRIVE = (
    "because a partner may still arrive at any time. Use JoinMode.interval or JoinMode.window, which stop waiting by "
    "event time."
)
_ON_ARRIVAL = "because left records are joined on arrival and right records do not wait for them."


def _check_type(chosen: JoinType, kind: str, possible: tuple[JoinType, ...], reason: str) -> None:
    if chosen not in possible:
        names = " or ".join(one.name for one in possible)
        raise ConfigurationError(f"join_type of {kind} must be {names}, not {chosen}, {reason}")


def _refuse(kind: str, given: dict[str, Callable[..., Any] | None]) -> None:
    for name, function in given.items():
        if function is not None:
            raise ConfigurationError(f"{name} does not apply to {kind}.")
