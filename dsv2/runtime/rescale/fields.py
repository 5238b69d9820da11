"""The function fields of a new subtask, from those of the old subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dsv2.errors import ContractError, IncompatibleCheckpointError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.fields import FieldsSnapshot, difference_of_fields
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.spi import WrappingFunction

__all__ = ("succeeding_fields",)


def succeeding_fields(
    operator: Operator, snapshots: Sequence[bytes], parallelism: int, subtask: int, codec: Codec
) -> bytes:
    """Return the fields of subtask ``subtask`` of ``parallelism`` new ones.

    Args:
        operator: The operator.
        snapshots: ``FunctionFields.snapshot`` of the old subtasks, in order.
        parallelism: The number of new subtasks.
        subtask: The index of the new one.
        codec: Decodes and encodes the fields.

    Raises:
        IncompatibleCheckpointError: The subtasks have different fields, and the function does not say how they are
            redistributed.
        UserFunctionError: ``redistribute_fields`` failed.
    """
    if all(snapshot == snapshots[0] for snapshot in snapshots):
        return snapshots[0]
    function = operator.function
    wrapped = function.wrapped if isinstance(function, WrappingFunction) else function
    assert isinstance(wrapped, ProcessFunction)
    old = [FieldsSnapshot.of(function, snapshot, codec) for snapshot in snapshots]
    if any(one.wrapping != old[0].wrapping for one in old):
        _refuse(operator, snapshots, codec)
    parts = _redistributed(operator, wrapped, [one.fields for one in old], parallelism, subtask)
    if parts is not None:
        return old[0].with_fields(parts[subtask]).dumps(codec)
    keyed = wrapped.keyed_fields
    rest = [one.without(keyed) for one in old] if old[0].removed is not None else old
    if any(one != rest[0] for one in rest):
        _refuse(operator, snapshots, codec)
    fields = dict(rest[0].fields)
    for name in keyed:
        fields[name] = _own_keys(operator, name, [one.fields.get(name, {}) for one in old], parallelism, subtask)
    return old[0].with_fields(fields).dumps(codec)


def _redistributed(
    operator: Operator, function: ProcessFunction, parts: list[Any], parallelism: int, subtask: int
) -> Sequence[Any] | None:
    try:
        result = function.redistribute_fields(parts, parallelism)
        if result is not None and (not isinstance(result, list | tuple) or len(result) != parallelism):
            raise ContractError(
                f"redistribute_fields must return a list of {parallelism} parts, one for each new subtask, not "
                f"{shorten(result)}."
            )
    except BaseException as error:
        raise_user_failure(operator, subtask, "redistribute_fields", error)
    return result


def _own_keys(operator: Operator, name: str, values: list[Any], parallelism: int, subtask: int) -> dict[Any, Any]:
    own: dict[Any, Any] = {}
    for value in values:
        if not isinstance(value, dict):
            raise IncompatibleCheckpointError(
                f"The field {name!r} of {operator}, defined at {operator.location}, is in keyed_fields and must be a "
                f"dict, not {type(value).__qualname__}."
            )
        for key, content in value.items():
            if subtask_of(key, operator.max_parallelism, parallelism) != subtask:
                continue
            if key in own and own[key] != content:
                raise IncompatibleCheckpointError(
                    f"Two subtasks of {operator}, defined at {operator.location}, have the key {key!r} in the field "
                    f"{name!r}, which is in keyed_fields. Its keys must be those by which the stream is partitioned."
                )
            own[key] = content
    return own


def _refuse(operator: Operator, snapshots: Sequence[bytes], codec: Codec) -> NoReturn:
    index = next(index for index, snapshot in enumerate(snapshots) if snapshot != snapshots[0])
    difference = difference_of_fields(operator.function, snapshots[0], snapshots[index], codec)
    raise IncompatibleCheckpointError(
        f"The subtasks of {operator}, defined at {operator.location}, differ in {difference} (subtasks 0 and {index}), "
        f"so their number cannot change. Choose one of these: keep such data in declared states; list dict fields "
        f"whose keys are the keys of the stream in keyed_fields; or define redistribute_fields(parts, parallelism)."
    )
