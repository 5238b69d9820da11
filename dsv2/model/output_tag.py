"""The outputs of a function: one or two, and side outputs, each with a name and a record type (Flink ``OutputTag``)."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic

from dsv2.base.type_variables import T
from dsv2.errors import ConfigurationError


class MainOutput(Enum):
    """The outputs of a function that are not side outputs. A function with one output has ``FIRST`` only."""

    FIRST = "first"
    SECOND = "second"


class OutputTag(Generic[T]):
    """Identifies a side output of a function.

    The function returns the tag from ``declare_outputs`` and emits with ``ctx.output(tag, record)``. Its result has the
    stream ``result.side_output(tag)``. Tags with the same name and type are equal.

    Args:
        name: The name, unique among the outputs of a function. It identifies the output in checkpoints.
        record_type: The type of the records. Omit it for types that are not classes:
            ``OutputTag[int | str]("mixed")``. Like that of any stream, it is checked by type checkers, and against the
            schema of a sink, but not for each record.

    Raises:
        ConfigurationError: The name is not a non-empty string, or the type is not a type.
    """

    __slots__ = ("name", "record_type")

    def __init__(self, name: str, record_type: type[T] | None = None) -> None:
        if not isinstance(name, str) or not name.strip():
            raise ConfigurationError(f"The name of an OutputTag must be a non-empty string, not {name!r}.")
        if record_type is not None and not _is_type(record_type):
            raise ConfigurationError(
                f"OutputTag({name!r}, ...) takes the type of the records, such as int or Order, not {record_type!r}. "
                f'For other types write OutputTag[int | str]("mixed").'
            )
        self.name = name
        self.record_type = record_type

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OutputTag):
            return NotImplemented
        return self.name == other.name and self.record_type == other.record_type

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        if self.record_type is None:
            return f"OutputTag({self.name!r})"
        return f"OutputTag({self.name!r}, {getattr(self.record_type, '__qualname__', self.record_type)})"


def _is_type(value: Any) -> bool:
    return isinstance(value, type) or isinstance(getattr(value, "__origin__", None), type)
