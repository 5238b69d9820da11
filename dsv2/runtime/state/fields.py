"""Checkpoints the instance fields of a process function.

Only fields that changed since construction are stored, so that a restarted program can change the others, such as a
threshold passed to the constructor. If a function defines ``__getstate__``, its result is stored instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from dsv2.errors import CorruptDataError, SerializationError
from dsv2.graph import Operator
from dsv2.runtime.report.metrics import DefaultCounter, DefaultHistogram
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec, References
from dsv2.runtime.serde.nested import Nested, Undecoded
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.partition import EventTimers
from dsv2.spi import WrappingFunction

# Descriptions of runtime objects for error messages.
_SHOWN: References = {
    DefaultCounter.reference_kind: "counter {!r}".format,
    DefaultHistogram.reference_kind: "histogram {!r}".format,
    EventTimers.reference_kind: lambda name: "event time",
    Handle.reference_kind: "state {!r}".format,
}
_LARGE = 16 << 20  # bytes
_SAMPLE = 1_000  # members of a container
_ATOMS = (int, float, str, bytes, bool, complex, type(None), type)


class _Kept(Reference):
    """A reference to an object of the runtime, which does not exist here."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def reference_name(self) -> str:
        return self._name


KEPT: References = {kind: type("Kept", (_Kept,), {"reference_kind": kind}) for kind in _SHOWN}
"""Keeps all references of a function, for programs that decode its fields without running it."""


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
        self._custom = _is_custom(function)
        self._pristine = {} if self._custom else _as_dict(object.__getstate__(function))
        self._pristine_bytes = {name: self._try_dumps(value) for name, value in self._pristine.items()}
        self._changed: set[str] = set()

    @property
    def kept(self) -> list[str]:
        """The names of the fields in the last ``snapshot``; empty if the function defines ``__getstate__``."""
        return sorted(self._changed)

    def snapshot(self) -> Nested:
        """Return the changed fields, to be encoded.

        Raises:
            SerializationError: A field cannot be serialized; names the field.
        """
        fields = self._snapshot()
        if not self._kept_of_wrapping:
            return Nested(fields)
        kept = {name: getattr(self._wrapping, name) for name in self._kept_of_wrapping}
        return Nested((self._codec.dumps(fields), kept))

    def name_unserializable(self) -> None:
        """Called when the ``snapshot`` cannot be encoded. Raises ``SerializationError`` if a field is the reason."""
        fields = self._snapshot()
        if self._custom:
            self._check(None, fields)
        else:
            for name, value in fields[0].items():
                self._check(name, value)

    def _snapshot(self) -> Any:
        if self._custom:
            return self._function.__getstate__()
        fields = _as_dict(object.__getstate__(self._function))
        for name, value in fields.items():
            if name not in self._changed and self._differs(name, value):
                self._check(name, value)
                self._changed.add(name)
        changed = {name: fields[name] for name in fields if name in self._changed}
        return changed, sorted(self._pristine.keys() - fields.keys())

    def restore(self, data: bytes | Undecoded) -> None:
        """Restore the fields of a ``snapshot``. Those of a savepoint are bytes."""
        state = self._codec.loads_nested(data, f"Fields of {self._operator}", self._references)
        if self._kept_of_wrapping:
            own, kept = state
            for name, value in kept.items():
                setattr(self._wrapping, name, value)
            state = self._codec.loads(own, f"Fields of {self._operator}", self._references)
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

    def keep_only(self, names: Collection[str]) -> None:
        """Remove restored fields whose names are not in ``names``: the program no longer uses them."""
        for name in sorted(self._changed.difference(names)):
            object.__delattr__(self._function, name)
            self._changed.discard(name)

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

    def _check(self, name: str | None, value: Any) -> None:
        what = "what __getstate__ returned" if name is None else f"field {name!r} ({type(value).__qualname__})"
        try:
            data = self._codec.dumps(value)
            if len(data) > _LARGE:
                del data
                data = self._codec.dumps(_part_of(value))
            # Also read it back: the job could never restart from a value that cannot be read.
            self._codec.loads(data, "Read back", self._references)
        except (SerializationError, CorruptDataError) as error:
            raise SerializationError(
                f"{self._operator}, defined at {self._operator.location}: {what} cannot be checkpointed. {error} "
                f"Fields of a function are part of its state: store plain values in them. Hold a model or a client in "
                f"a dsv2.Resource. Or define __getstate__ (without the field) and __setstate__ (which recreates it)."
            ) from error


class DecodedFields(NamedTuple):
    """The content of ``FunctionFields.snapshot``.

    Attributes:
        state: The changed fields by name, or what ``__getstate__`` returned.
        removed: The names of removed fields.
        of_wrapping: The fields of the extension that wraps the function, by name.
        is_custom: Whether the function defines ``__getstate__``.
    """

    state: Any
    removed: Sequence[str]
    of_wrapping: Mapping[str, Any]
    is_custom: bool


def decode_fields(operator: Operator, data: bytes, codec: Codec, references: References) -> DecodedFields:
    """Decode the fields of a function of ``operator``. For tools; ``FunctionFields.restore`` does it for a job."""
    function, owner = operator.function, f"Fields of {operator}"
    of_wrapping: Mapping[str, Any] = {}
    if isinstance(function, WrappingFunction):
        if function.kept_fields:
            data, of_wrapping = codec.loads(data, owner, references)
        function = function.wrapped  # type: ignore[assignment]
    state = codec.loads(data, owner, references)
    if _is_custom(function):
        return DecodedFields(state, (), of_wrapping, is_custom=True)
    changed, removed = state
    return DecodedFields(changed, removed, of_wrapping, is_custom=False)


def encode_fields(fields: DecodedFields, codec: Codec) -> bytes:
    """Encode what ``decode_fields`` decodes. Raises ``SerializationError`` if a field is not data."""
    data = codec.dumps(fields.state if fields.is_custom else (fields.state, list(fields.removed)))
    return codec.dumps((data, dict(fields.of_wrapping))) if fields.of_wrapping else data


def difference_of_fields(
    function: object, first: bytes, second: bytes, codec: Codec, ignored: Collection[str] = ()
) -> str:
    """Describe the difference between two different snapshots of the fields of ``function``, except ``ignored``."""
    if isinstance(function, WrappingFunction):
        if function.kept_fields:
            first, second = (codec.loads(data, "Fields", _SHOWN)[0] for data in (first, second))
        function = function.wrapped
    if _is_custom(function):
        return "what __getstate__ returned"
    kept = [codec.loads(data, "Fields", _SHOWN)[0] for data in (first, second)]
    for name in sorted({*kept[0], *kept[1]} - {*ignored}):
        values = [shorten(fields[name]) if name in fields else "its initial value" for fields in kept]
        if values[0] != values[1]:
            return f"the field {name!r} of the function: {values[0]} and {values[1]}"
    return "fields of the function"


def _part_of(value: Any) -> Any:
    """Return a part of a large value, which is enough to see that it can be read."""
    if isinstance(value, dict):
        return dict(islice(value.items(), _SAMPLE))
    if isinstance(value, list | tuple | set | frozenset | bytes | bytearray | str):
        return [*islice(value, _SAMPLE)]
    return value


def _is_custom(function: object) -> bool:
    return type(function).__getstate__ is not object.__getstate__


def _as_dict(state: Any) -> dict[str, Any]:
    # The default __getstate__ returns a dict, None, or (dict or None, slots).
    plain, slots = state if isinstance(state, tuple) else (state, None)
    return {**(plain or {}), **(slots or {})}
