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

Encode: TypeAlias = Callable[[Any], bytes]

_NAMES = {"UTC": UTC, **{kind.__name__: kind for kind in (Decimal, NoneType, UUID, date, datetime, time)}}


def with_fast_path(
    encode: Encode, checked: Encode, kind: type, conditions: Mapping[str, Sequence[str]], *, as_dict: bool
) -> Encode:
    """Return a function that encodes records, without checks where this is possible.

    Args:
        encode: Encodes records of ``kind`` whose fields each meet a condition.
        checked: Encodes other records, and those that ``encode`` cannot encode: its errors name the field.
        kind: The class of the records. A ``dict`` must have exactly the fields of ``conditions``.
        conditions: The alternative conditions of each field: expressions of its value ``{0}``.
        as_dict: Whether to convert records to dicts for ``encode``.
    """
    if not all(conditions.values()):
        return checked
    value_of = "record[{0!r}]" if kind is dict else "record.{0}"
    values = {name: value_of.format(name) for name in conditions}
    terms = ["type(record) is kind", f"len(record) == {len(conditions)}" if kind is dict else "True"]
    for name, options in conditions.items():
        terms.append(f"({' or '.join(option.format(values[name]) for option in options)})")
    row = f"{{{', '.join(f'{name!r}: {value}' for name, value in values.items())}}}" if as_dict else "record"
    expression = f"lambda record: encode({row}) if {' and '.join(terms)} else None"
    fast: Callable[[Any], bytes | None] = eval(expression, {**_NAMES, "kind": kind, "encode": encode})

    def encode_record(record: Any) -> bytes:
        try:
            data = fast(record)
        except Exception:
            data = None
        return checked(record) if data is None else data

    return encode_record
