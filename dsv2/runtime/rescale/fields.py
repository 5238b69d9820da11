"""Redistributes the fields of a function.

``redistribute_fields`` of the function decides if it is defined. Otherwise the fields named in ``keyed_fields`` are
distributed by key, and the others must be equal in all old subtasks. They are copied. Of a single old subtask it is not
known whether they are equal in all, so they are not copied to several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

from dsv2.errors import IncompatibleCheckpointError, InvalidKeyError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.state.fields import KEPT, decode_fields, difference_of_fields, encode_fields
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.spi import WrappingFunction

_WAYS_OUT = (
    "If it is a dict by partition key, name it in the function's attribute keyed_fields. Otherwise define "
    "redistribute_fields(parts, parallelism), which returns the fields of each new subtask, or use declared state for "
    "data that records change."
)


def rescaled_fields(operator: Operator, parts: Sequence[bytes], codec: Codec) -> list[bytes]:
    """Return the fields of each new subtask of ``operator``.

    Args:
        operator: The operator in the new program.
        parts: ``FunctionFields.snapshot()`` of the old subtasks, ordered by index.
        codec: Decodes and encodes fields.

    Raises:
        IncompatibleCheckpointError: The fields differ and the function does not say how to redistribute them, or
            ``redistribute_fields`` or ``keyed_fields`` is wrong.
    """
    function = operator.function.wrapped if isinstance(operator.function, WrappingFunction) else operator.function
    redistribute = getattr(function, "redistribute_fields", None)
    keyed = _keyed_fields(operator, function)
    if redistribute is None and not keyed:
        _check_equal(operator, parts, codec)
        _check_single(operator, parts, codec, ())
        return [parts[0]] * operator.parallelism
    old = [decode_fields(operator, part, codec, KEPT) for part in parts]
    if any(codec.dumps(fields.of_wrapping) != codec.dumps(old[0].of_wrapping) for fields in old):
        _refuse(operator, "fields of the extension", 0, 1)
    states = [fields.state for fields in old]
    if redistribute is not None:
        new = _redistributed(operator, redistribute, states, old[0].is_custom)
    else:
        if old[0].is_custom:
            raise IncompatibleCheckpointError(
                f"{_name(operator)}: the function defines __getstate__, so keyed_fields have no meaning. Define "
                f"redistribute_fields(parts, parallelism) instead."
            )
        new = _by_key(operator, keyed, states, parts, codec)
    removed = sorted(set(old[0].removed).intersection(*(fields.removed for fields in old)))
    try:
        return [encode_fields(old[0]._replace(state=state, removed=removed), codec) for state in new]
    except SerializationError as error:
        raise IncompatibleCheckpointError(
            f"{_name(operator)}: what redistribute_fields returned cannot be checkpointed. {error}"
        ) from error


def _redistributed(operator: Operator, redistribute: Any, states: list[Any], is_custom: bool) -> list[Any]:
    called = f"{_name(operator)}: redistribute_fields"
    count = operator.parallelism
    try:
        new = redistribute(states, count)
    except Exception as error:
        raise IncompatibleCheckpointError(f"{called} failed: {type(error).__qualname__}: {error}") from error
    if not isinstance(new, list | tuple) or len(new) != count:
        raise IncompatibleCheckpointError(
            f"{called} must return a list with the fields of each of the {count} new subtasks, but it returned "
            f"{shorten(new)}."
        )
    for fields in () if is_custom else new:
        if not isinstance(fields, dict) or not all(isinstance(name, str) for name in fields):
            raise IncompatibleCheckpointError(
                f"{called} must return a dict of fields by name for each subtask, but one of them is {shorten(fields)}."
            )
    return list(new)


def _by_key(
    operator: Operator,
    keyed: Collection[str],
    states: Sequence[Mapping[str, Any]],
    parts: Sequence[bytes],
    codec: Codec,
) -> list[dict[str, Any]]:
    others = [codec.dumps({name: v for name, v in sorted(fields.items()) if name not in keyed}) for fields in states]
    for index, other in enumerate(others):
        if other != others[0]:
            _refuse(operator, difference_of_fields(operator.function, parts[0], parts[index], codec, keyed), 0, index)
    _check_single(operator, parts, codec, keyed)
    new: list[dict[str, Any]] = [
        {name: value for name, value in states[0].items() if name not in keyed} for _ in range(operator.parallelism)
    ]
    for name in keyed:
        values = [fields[name] for fields in states if name in fields]
        if values:
            for of_subtask, value in zip(new, _divided(operator, name, values), strict=True):
                of_subtask[name] = value
    return new


def _divided(operator: Operator, name: str, values: Sequence[Any]) -> list[Any]:
    field = f"{_name(operator)}: the field {name!r}, which is named in keyed_fields,"
    for value in values:
        if not isinstance(value, dict):
            raise IncompatibleCheckpointError(f"{field} must be a dict, but it is {shorten(value)}.")
    new = [_empty_like(values[0]) for _ in range(operator.parallelism)]
    for value in values:
        for key, content in value.items():
            try:
                target = new[subtask_of(key, operator.max_parallelism, operator.parallelism)]
            except InvalidKeyError as error:
                raise IncompatibleCheckpointError(f"{field} must have partition keys. {error}") from error
            if key in target:
                raise IncompatibleCheckpointError(
                    f"{field} has the key {shorten(key)} in two subtasks. Its keys must be those by which the stream "
                    f"is partitioned. Otherwise define redistribute_fields(parts, parallelism), which merges them."
                )
            target[key] = content
    return new


def _empty_like(value: dict[Any, Any]) -> dict[Any, Any]:
    empty = value.copy()  # keeps the class, and the factory of a defaultdict
    empty.clear()
    return empty


def _keyed_fields(operator: Operator, function: object) -> Sequence[str]:
    keyed = getattr(function, "keyed_fields", ())
    if isinstance(keyed, str) or not isinstance(keyed, Collection) or not all(isinstance(n, str) for n in keyed):
        raise IncompatibleCheckpointError(
            f"{_name(operator)}: keyed_fields must be a tuple with the names of fields, not {shorten(keyed)}."
        )
    return sorted(keyed)


def _check_equal(operator: Operator, parts: Sequence[bytes], codec: Codec) -> None:
    for index, part in enumerate(parts):
        if part != parts[0]:
            _refuse(operator, difference_of_fields(operator.function, parts[0], part, codec), 0, index)


def _check_single(operator: Operator, parts: Sequence[bytes], codec: Codec, keyed: Collection[str]) -> None:
    """Refuse to copy the fields of one subtask to several."""
    if len(parts) > 1 or operator.parallelism == 1:
        return
    fields = decode_fields(operator, parts[0], codec, KEPT)
    if fields.is_custom:
        names = ["what __getstate__ returned"]
    else:
        own = (name for name, value in fields.state.items() if not isinstance(value, Reference))
        names = [f"the field {name!r}" for name in sorted(own) if name not in keyed]
    if names:
        raise IncompatibleCheckpointError(
            f"The only subtask of {operator}, defined at {operator.location}, has {', '.join(names)} of the function. "
            f"dsv2 cannot give it to {operator.parallelism} subtasks. {_WAYS_OUT}"
        )


def _refuse(operator: Operator, difference: str, first: int, second: int) -> NoReturn:
    raise IncompatibleCheckpointError(
        f"The subtasks of {operator}, defined at {operator.location}, differ in {difference} (subtasks {first} and "
        f"{second}), so dsv2 cannot give it to {operator.parallelism} subtasks. {_WAYS_OUT}"
    )


def _name(operator: Operator) -> str:
    return f"{operator}, defined at {operator.location}"
