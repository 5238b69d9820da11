"""The base of encoders, and their fast path: records of scalars, whose types are compared by a compiled expression.

A loop over the fields would cost more than encoding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias
from uuid import UUID

from dsv2.base.type_variables import T_contra

if TYPE_CHECKING:
    from dsv2.connectors.formats.registry import Subject


class PreparedEncoder(ABC, Generic[T_contra]):
    """Encodes records of ``record_type``, whose schema belongs to ``subject`` of a registry. None: to none."""

    def __init__(self, record_type: type[T_contra], subject: Subject | None) -> None:
        self._record_type = record_type
        self._subject = subject
        self._encode: Callable[[T_contra], bytes] | None = None
        self._first = b""  # before each record

    def __call__(self, record: T_contra, /) -> bytes:
        """Encode one record.

        Raises:
            FormatError: The record does not match the schema, or cannot be encoded.
            JobError: The registry does not have the schema, or cannot be reached.
        """
        encode = self._encode
        if encode is None:
            self._first = b"" if self._subject is None else self._header(self._subject)
            encode = self._encode = self._prepared()
        return self._first + encode(record)

    @abstractmethod
    def _header(self, subject: Subject) -> bytes:
        """Return what precedes each record: the id of its schema, which the registry has or gets."""

    @abstractmethod
    def _prepared(self) -> Callable[[T_contra], bytes]:
        """Return what encodes. Called once in a process."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._record_type.__qualname__}, subject={self._subject})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_encode": None, "_first": b""}


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
