"""Checkpoints the instance fields of a process function.

Only fields that changed since construction are stored, so that a restarted program can change the others, such as a
threshold passed to the constructor. If a function defines ``__getstate__``, its result is stored instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.report.metrics import DefaultCounter
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec, References
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.partition import EventTimers
from dsv2.spi import WrappingFunction

__all__ = ("FieldsSnapshot", "FunctionFields", "difference_of_fields")

# Descriptions of runtime objects for error messages.
_SHOWN: References = {
    DefaultCounter.reference_kind: "counter {!r}".format,
    EventTimers.reference_kind: lambda name: "event time",
    Handle.reference_kind: "state {!r}".format,
}


class _Kept(Reference):
    """A reference that is written again as it was read."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def reference_name(self) -> str:
        return self._name

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._name == getattr(other, "_name", None)

    def __hash__(self) -> int:
        return hash(self._name)


# A class for each kind, because objects of one class are encoded with the kind of the first.
_KEPT: References = {kind: type("_Kept", (_Kept,), {"reference_kind": kind}) for kind in _SHOWN}
_ATOMS = (int, float, str, bytes, bool, complex, type(None), type)


class FunctionFields:
    """Tracks the fields of one function. Created before the first callback, after construction or unpickling."""

    def __init__(
        self,
        function: object,
        operator: Operator,
        codec: Codec,
        references: References,
    ) -> None:
        """Record the initial fields.

        Args:
            function: The function.
            operator: Its operator, for error messages.
            codec: Serializes the fields.
            references: Finds the runtime objects that the function stores in its fields.
        """
        self._wrapping = function
        self._kept_of_wrapping: Collection[str] = ()
        if isinstance(function, WrappingFunction):
            self._kept_of_wrapping = function.kept_fields
            function = function.wrapped
        self._function = function
        self._operator = operator
        self._codec = codec
        self._references = references
        self._custom = type(function).__getstate__ is not object.__getstate__
        self._pristine = {} if self._custom else _as_dict(object.__getstate__(function))
        self._pristine_bytes = {name: self._try_dumps(value) for name, value in self._pristine.items()}
        self._changed: set[str] = set()

    @property
    def kept(self) -> list[str]:
        """The names of the fields in the last ``snapshot``; empty if the function defines ``__getstate__``."""
        return sorted(self._changed)

    def snapshot(self) -> bytes:
        """Return the changed fields as bytes.

        Raises:
            SerializationError: A field cannot be serialized; names the field.
        """
        fields = self._snapshot()
        if not self._kept_of_wrapping:
            return fields
        return self._codec.dumps((fields, {name: getattr(self._wrapping, name) for name in self._kept_of_wrapping}))

    def _snapshot(self) -> bytes:
        if self._custom:
            return self._dumps(self._function.__getstate__(), "what __getstate__ returned")
        fields = _as_dict(object.__getstate__(self._function))
        for name, value in fields.items():
            if name not in self._changed and self._differs(name, value):
                self._check(name, value)
                self._changed.add(name)
        changed = {name: fields[name] for name in fields if name in self._changed}
        removed = sorted(self._pristine.keys() - fields.keys())
        try:
            return self._codec.dumps((changed, removed))
        except SerializationError:
            for name, value in changed.items():
                self._check(name, value)
            raise

    def restore(self, data: bytes) -> None:
        """Restore the fields of a ``snapshot``."""
        state = self._codec.loads(data, f"Fields of {self._operator}", self._references)
        if self._kept_of_wrapping:
            data, kept = state
            for name, value in kept.items():
                setattr(self._wrapping, name, value)
            state = self._codec.loads(data, f"Fields of {self._operator}", self._references)
        if self._custom:
            restore_state = getattr(self._function, "__setstate__", None)
            if restore_state is not None:
                restore_state(state)
            else:
                self._set(_as_dict(state))
            return
        changed, removed = state
        self._set(changed)
        for name in removed:
            if hasattr(self._function, name):
                object.__delattr__(self._function, name)
        self._changed = set(changed)

    def _set(self, fields: dict[str, Any]) -> None:
        for name, value in fields.items():
            object.__setattr__(self._function, name, value)

    def _differs(self, name: str, value: Any) -> bool:
        if name not in self._pristine:
            return True
        same = value is self._pristine[name]
        before = self._pristine_bytes[name]
        if same and (before is None or isinstance(value, _ATOMS)):
            return False  # a callable or a lock: part of the program, not state
        return before is None or self._try_dumps(value) != before

    def _try_dumps(self, value: Any) -> bytes | None:
        try:
            return self._codec.dumps(value)
        except SerializationError:
            return None

    def _check(self, name: str, value: Any) -> None:
        # Also read it back: the job could never restart from a value that cannot be read.
        self._dumps(value, f"field {name!r} ({type(value).__qualname__})", read_back=True)

    def _dumps(self, value: Any, what: str, read_back: bool = False) -> bytes:
        try:
            data = self._codec.dumps(value)
            if read_back:
                self._codec.loads(data, "Read back", self._references)
            return data
        except (SerializationError, CorruptDataError) as error:
            raise SerializationError(
                f"{self._operator}, defined at {self._operator.location}: {what} cannot be checkpointed. {error} "
                f"Fields of a function are part of its state: store plain values in them, or define __getstate__ "
                f"(without the field) and __setstate__ (which recreates it)."
            ) from error


@dataclass(frozen=True)
class FieldsSnapshot:
    """The content of a ``FunctionFields.snapshot``.

    Attributes:
        fields: The changed fields by name; if the function defines ``__getstate__``, its result.
        removed: The names of removed fields; None if the function defines ``__getstate__``.
        wrapping: The fields of the wrapping function; None if there is none.
    """

    fields: Any
    removed: Sequence[str] | None
    wrapping: Mapping[str, Any] | None

    @staticmethod
    def of(function: object, data: bytes, codec: Codec) -> FieldsSnapshot:
        """Decode a snapshot of the fields of ``function``. References to runtime objects are kept."""
        content, wrapping = codec.loads(data, "Fields", _KEPT), None
        if isinstance(function, WrappingFunction):
            if function.kept_fields:
                inner, wrapping = content
                content = codec.loads(inner, "Fields", _KEPT)
            function = function.wrapped
        if type(function).__getstate__ is not object.__getstate__:
            return FieldsSnapshot(content, None, wrapping)
        fields, removed = content
        return FieldsSnapshot(fields, removed, wrapping)

    def with_fields(self, fields: Any) -> FieldsSnapshot:
        """Return a snapshot with other fields."""
        return replace(self, fields=fields)

    def without(self, names: Iterable[str]) -> FieldsSnapshot:
        """Return a snapshot without some fields."""
        return replace(self, fields={name: value for name, value in self.fields.items() if name not in names})

    def dumps(self, codec: Codec) -> bytes:
        """Encode the snapshot."""
        data = codec.dumps(self.fields if self.removed is None else (self.fields, self.removed))
        return data if self.wrapping is None else codec.dumps((data, self.wrapping))


def difference_of_fields(function: object, first: bytes, second: bytes, codec: Codec) -> str:
    """Describe the difference between two different snapshots of the fields of ``function``."""
    function = function.wrapped if isinstance(function, WrappingFunction) else function
    if type(function).__getstate__ is not object.__getstate__:
        return "what __getstate__ returned"
    kept = [codec.loads(data, "Fields", _SHOWN)[0] for data in (first, second)]
    for name in sorted({*kept[0], *kept[1]}):
        values = [shorten(fields[name]) if name in fields else "its initial value" for fields in kept]
        if values[0] != values[1]:
            return f"the field {name!r} of the function: {values[0]} and {values[1]}"
    return "fields of the function"


def _as_dict(state: Any) -> dict[str, Any]:
    # The default __getstate__ returns a dict, None, or (dict or None, slots).
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {**(plain or {}), **(slots or {})}
