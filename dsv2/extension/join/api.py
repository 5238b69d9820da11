"""``join``, which creates the joins of two keyed streams (Flink ``BuiltinFuncs.join``)."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, Literal, TypeAlias, TypedDict, Unpack, cast, overload

from dsv2.aggregates.field_types import field_types
from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.checks.arguments import as_choice
from dsv2.errors import ConfigurationError
from dsv2.extension.join.declared import DeclaredJoin, Source
from dsv2.extension.join.functions import (
    Joining,
    JoinType,
    JoinTypeChoice,
    LateRecord,
    as_join_function,
)
from dsv2.extension.join.modes import (
    IntervalMode,
    JoinMode,
    TemporalMode,
    UnboundedMode,
    VersionedMode,
    WindowMode,
)
from dsv2.extension.join.record_joins import JoinOptions, record_join
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
    row_key: Callable[[IN2], Hashable] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2 | None, OUT],
    mode: TemporalMode,
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
    row_key: Callable[[IN2], Hashable] | None = None,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2, OUT],
    mode: VersionedMode,
    join_type: Literal[JoinType.INNER, "inner"] = JoinType.INNER,
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def join(
    function: Joining[IN1, IN2 | None, OUT],
    mode: VersionedMode,
    join_type: Literal[JoinType.LEFT, "left"],
    *,
    is_deletion: Callable[[IN2], bool] | None = None,
    **late: Unpack[_LateCallbacks[IN1, IN2, OUT]],
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
@overload
def join(
    function: type[OUT],
    mode: JoinMode = ...,
    join_type: JoinTypeChoice = ...,
    *,
    is_deletion: Callable[[Any], bool] | None = None,
    row_key: Callable[[Any], Hashable] | None = None,
    on_late_left: LateRecord[Any, OUT] | None = None,
    on_late_right: LateRecord[Any, OUT] | None = None,
    left_records: type[Any] | None = None,
    right_records: type[Any] | None = None,
    **fields: Source,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, OUT]: ...
def join(
    function: Joining[Any, Any, Any] | type[Any],
    mode: JoinMode = _UNBOUNDED,
    join_type: JoinTypeChoice = JoinType.INNER,
    *,
    is_deletion: Callable[[Any], bool] | None = None,
    row_key: Callable[[Any], Hashable] | None = None,
    on_late_left: LateRecord[Any, Any] | None = None,
    on_late_right: LateRecord[Any, Any] | None = None,
    left_records: type[Any] | None = None,
    right_records: type[Any] | None = None,
    **fields: Any,
) -> TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]:
    """Join records with equal keys.

    Use it as ``keyed.connect_and_process(other_keyed, join(...))``, also with a key selector that keeps the result
    keyed.

    Args:
        function: Called with every pair of partners, and with None in place of a missing partner. Or the class of the
            results, a NamedTuple class or dataclass, which have the fields of both partners.
        mode: The records that are partners, see ``JoinMode``. Default: all.
        join_type: Which records the function is called with, see ``JoinType``. Without bounds only INNER is possible,
            because a partner may still arrive at any time. A temporal or versioned join can be INNER, or LEFT, which
            joins a left record without a row with None.
        is_deletion: Of a temporal or versioned join: whether a row deletes the row of its key. None (default): no row
            does.
        row_key: Of a temporal join: the key of a row among the rows of its key, which are all partners. A row
            replaces the one with the same row key. None (default): a key has one row.
        on_late_left: In event time, called with (record, output, ctx) for late left records. None (default): they are
            dropped and counted in the metric ``late_records_dropped``.
        on_late_right: The same for late right records.
        left_records: If ``function`` is a class: the class of the left records. None: as the stream declares it.
        right_records: The same for the right records.
        fields: If ``function`` is a class: what its fields hold, ``Left(field)``, ``Right(field)``, or in windows
            ``WindowStart()`` and ``WindowEnd()`` of ``dsv2.aggregates``. Other fields are those of the same name.

    With a class of results, a join runs on columns if the records of both sides have columns and both key selectors are
    an ``operator.attrgetter``. ``explain`` says whether, and why not.

    Raises:
        PlanError: ``connect_and_process`` raises it if ``fields`` are not those of the class or of the records, or have
            other types.
        ConfigurationError: The mode does not have this join type or callable, or a callable does not accept its
            arguments.
    """
    chosen = as_choice(JoinType, join_type, "join_type")
    options = JoinOptions(is_deletion, on_late_left, on_late_right, row_key)
    if field_types(function) is not None:
        if not (isinstance(mode, IntervalMode) and isinstance(mode.upper, str)):
            record_join(as_join_function(_nothing), mode, chosen, options)
        records = left_records, right_records
        declared: Any = DeclaredJoin(cast(type[Any], function), mode, chosen, fields, records, options)
        return declared  # type: ignore[no-any-return]  # connect_and_process replaces it
    for name in (*fields, *_given(left_records=left_records, right_records=right_records)):
        raise ConfigurationError(
            f"join takes no argument {name!r}, except with a class of results instead of a function."
        )
    return record_join(as_join_function(cast(Joining[Any, Any, Any], function)), mode, chosen, options)


def _given(**arguments: object) -> list[str]:
    return [name for name, value in arguments.items() if value is not None]


def _nothing(left: object, right: object, output: object, ctx: object) -> None:
    """The join function with which the other arguments of a declared join are checked."""
