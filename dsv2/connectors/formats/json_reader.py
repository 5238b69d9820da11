"""Decodes JSON to the records of a class, one or many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from dsv2.connectors.formats.record_classes import alternatives, fields_of, is_record_class
from dsv2.errors import ConfigurationError


class JsonReader:
    """Decodes records of ``record_type``.

    msgspec would decode a NamedTuple from an array. Here it decodes objects of a class with the same fields.

    Attributes:
        read: Decodes one record.

    Raises:
        ConfigurationError: ``record_type`` is not supported. Names the class ``user``.
    """

    read: Callable[[bytes], Any]

    def __init__(self, user: str, record_type: type) -> None:
        _check_nested(user, record_type)
        self._record_type = record_type
        self._names: list[str] = []  # of the fields of a NamedTuple
        try:
            decoder = msgspec.json.Decoder(self._decoded_type(), strict=True)
        except TypeError as error:
            name = record_type.__qualname__
            raise ConfigurationError(f"{user}: {name} cannot be decoded from JSON: {error}.") from error
        self.read = decoder.decode
        self._decode: Callable[[bytes], Any] = decoder.decode
        if len(self._names) == 1:
            (name,) = self._names
            self.read = lambda data: record_type(getattr(decoder.decode(data), name))
        elif self._names:
            values = attrgetter(*self._names)
            self.read = lambda data: record_type(*values(decoder.decode(data)))

    def objects(self, values: Sequence[bytes]) -> list[Any]:
        """Return an object with the fields of the record for each value.

        One call for all values would be a fifth faster, but confuses an object in two lines with two in one line.

        Raises:
            msgspec.MsgspecError: A value does not match.
        """
        return list(map(self._decode, values))

    def records(self, values: Sequence[bytes]) -> Sequence[Any]:
        """Return the records. Raises as ``objects`` does."""
        found = self.objects(values)
        columns = [map(attrgetter(name), found) for name in self._names]
        return list(map(self._record_type, *columns)) if columns else found

    def _decoded_type(self) -> Any:
        record_type = self._record_type
        if not (is_record_class(record_type) and issubclass(record_type, tuple)):
            return record_type
        defaults = getattr(record_type, "_field_defaults", {})
        fields = fields_of(record_type)
        self._names = [field.name for field in fields]
        return msgspec.defstruct(
            record_type.__name__,
            [(f.name, f.hint) if f.required else (f.name, f.hint, defaults[f.name]) for f in fields],
            kw_only=True,
            gc=False,
        )


def _check_nested(user: str, record_type: type, *, seen: frozenset[type] = frozenset()) -> None:
    if not is_record_class(record_type) or record_type in seen:
        return
    for field in fields_of(record_type):
        for kind in alternatives(field.hint):
            if isinstance(kind, type) and issubclass(kind, tuple) and is_record_class(kind):
                raise ConfigurationError(
                    f"{user}: {record_type.__qualname__}.{field.name} is a NamedTuple, which would be an array in "
                    f"JSON. Use a dataclass for nested records."
                )
            if isinstance(kind, type):
                _check_nested(user, kind, seen=seen | {record_type})
