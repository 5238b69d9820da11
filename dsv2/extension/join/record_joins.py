"""Joins of a join function, record by record, by their mode."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from dsv2.base.callables import takes
from dsv2.errors import ConfigurationError
from dsv2.extension.join.functions import (
    JoinFunction,
    JoinType,
    LateRecord,
    TimedJoinFunction,
    WindowJoinFunction,
    check_late,
)
from dsv2.extension.join.interval import new_interval_join
from dsv2.extension.join.modes import IntervalMode, JoinMode, TemporalMode, UnboundedMode, VersionedMode, WindowMode
from dsv2.extension.join.temporal import TemporalJoin
from dsv2.extension.join.unbounded import UnboundedJoin
from dsv2.extension.join.versioned import VersionedJoin
from dsv2.extension.join.windowed import ExistenceInWindow, JoinInWindow, RunningInWindow, WindowJoin
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction

ENDS_WITH_FIELD = "An interval that ends with a field of the left records is joined on columns only"


class JoinOptions(NamedTuple):
    """The callables of ``join`` that not all modes have."""

    is_deletion: Callable[[Any], bool] | None
    on_late_left: LateRecord[Any, Any] | None
    on_late_right: LateRecord[Any, Any] | None
    row_key: Callable[[Any], Hashable] | None


def record_join(
    function: JoinFunction[Any, Any, Any], mode: JoinMode, chosen: JoinType, options: JoinOptions
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Return the join that calls ``function``.

    Raises:
        ConfigurationError: The mode does not have this join type, callable or function.
    """
    given, (is_deletion, on_late_left, on_late_right, row_key) = options._asdict(), options
    if type(function).process_record is WindowJoinFunction.process_record and not isinstance(mode, WindowMode):
        raise ConfigurationError(
            f"{type(function).__qualname__} is a WindowJoinFunction: use JoinMode.window(strategy)."
        )
    if isinstance(function, TimedJoinFunction) and not isinstance(mode, IntervalMode | VersionedMode):
        raise ConfigurationError(
            f"{type(function).__qualname__} is a TimedJoinFunction: use JoinMode.interval or JoinMode.versioned. Other "
            f"joins do not keep the timestamps of both records."
        )
    match mode:
        case UnboundedMode(ttl=ttl):
            _refuse("an unbounded join", given)
            _check_type(chosen, "an unbounded join", (JoinType.INNER,), _MAY_ARRIVE)
            return UnboundedJoin(function, ttl)
        case TemporalMode():
            del given["is_deletion"], given["row_key"]
            _refuse("a temporal join", given)
            _check_type(chosen, "a temporal join", (JoinType.INNER, JoinType.LEFT), _ON_ARRIVAL)
            _check_deletion(is_deletion)
            if row_key is not None and not takes(row_key, 1):
                raise ConfigurationError(f"row_key must be a callable (row) -> key, not {row_key!r}.")
            return TemporalJoin(function, chosen, is_deletion, row_key, mode)
    _refuse("a join that is not temporal", {"row_key": row_key})
    check_late(on_late_left=on_late_left, on_late_right=on_late_right)
    if isinstance(mode, VersionedMode):
        _check_type(chosen, "a versioned join", (JoinType.INNER, JoinType.LEFT), _NOT_JOINED)
        _check_deletion(is_deletion)
        return VersionedJoin(function, chosen, is_deletion, (on_late_left, on_late_right), mode.ttl)
    _refuse("a join in intervals or windows", {"is_deletion": is_deletion})
    match mode:
        case IntervalMode(upper=str()):
            raise ConfigurationError(f"{ENDS_WITH_FIELD}. Pass a class of results instead of a function.")
        case IntervalMode(lower=lower, upper=int(upper), by_clock=by_clock):
            if by_clock:
                _refuse(
                    "an interval in processing time", {"on_late_left": on_late_left, "on_late_right": on_late_right}
                )
            return new_interval_join(function, chosen, lower, upper, on_late_left, on_late_right, by_clock=by_clock)
        case WindowMode(strategy=strategy, running=running):
            kind = ExistenceInWindow if chosen in (JoinType.SEMI, JoinType.ANTI) else JoinInWindow
            if running and chosen is not JoinType.ANTI:
                kind = RunningInWindow
            return WindowJoin(strategy, kind(function, chosen, on_late_left, on_late_right))
    raise ConfigurationError(f"mode must be a JoinMode, such as JoinMode.interval(lower, upper), not {mode!r}.")


_MAY_ARRIVE = (
    "because a partner may still arrive at any time. Use JoinMode.interval or JoinMode.window, which stop waiting by "
    "event time."
)
_ON_ARRIVAL = "because left records are joined on arrival and right records do not wait for them."

_NOT_JOINED = "because versions do not wait for left records."


def _check_deletion(is_deletion: object) -> None:
    if is_deletion is not None and not takes(is_deletion, 1):
        raise ConfigurationError(f"is_deletion must be a callable (row) -> bool, not {is_deletion!r}.")


def _check_type(chosen: JoinType, kind: str, possible: tuple[JoinType, ...], reason: str) -> None:
    if chosen not in possible:
        names = " or ".join(one.name for one in possible)
        raise ConfigurationError(f"join_type of {kind} must be {names}, not {chosen}, {reason}")


def _refuse(kind: str, given: dict[str, Callable[..., Any] | None]) -> None:
    for name, function in given.items():
        if function is not None:
            raise ConfigurationError(f"{name} does not apply to {kind}.")
