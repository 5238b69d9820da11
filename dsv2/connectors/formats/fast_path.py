"""The fast path of encoders: records of scalars, whose types are compared by a compiled expression.

A loop over the fields would cost more than encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

__all__ = ("Encode", "TryToEncode", "encoder_of_scalars", "with_fast_path")

Encode: TypeAlias = Callable[[Any], bytes]
TryToEncode: TypeAlias = Callable[[Any], bytes | None]

_NAMES = {"UTC": UTC, **{kind.__name__: kind for kind in (Decimal, NoneType, UUID, date, datetime, time)}}


def encoder_of_scalars(
    kind: type, conditions: Mapping[str, Sequence[str]], encode: Encode, *, as_dict: bool
) -> TryToEncode | None:
    """Return a function that encodes records if each of their fields meets a condition, and otherwise returns None.

    The result is None if no value of a field meets one.

    Args:
        kind: The class of the records. A ``dict`` must have exactly these fields, or ``KeyError`` may be raised.
        conditions: The alternative conditions of each field: expressions of its value ``{0}``.
        encode: Encodes a record.
        as_dict: Whether to convert records to dicts for it.
    """
    if not all(conditions.values()):
        return None
    value_of = "record[{0!r}]" if kind is dict else "record.{0}"
    values = {name: value_of.format(name) for name in conditions}
    terms = ["type(record) is kind", f"len(record) == {len(conditions)}" if kind is dict else "True"]
    for name, options in conditions.items():
        terms.append(f"({' or '.join(option.format(values[name]) for option in options)})")
    row = f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}" if as_dict else "record"
    expression = f"lambda record: encode({row}) if {' and '.join(terms)} else None"
    compiled: TryToEncode = eval(expression, {**_NAMES, "kind": kind, "encode": encode})
    return compiled


def with_fast_path(encode: TryToEncode | None, checked: Encode) -> Encode:
    """Return an encoder that uses ``checked``, which names fields in errors, where ``encode`` returns None or fails."""
    if encode is None:
        return checked

    def encode_record(record: Any) -> bytes:
        try:
            data = encode(record)
        except Exception:
            data = None
        return checked(record) if data is None else data

    return encode_record
