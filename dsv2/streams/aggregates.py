"""Declared aggregates of keyed and global streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from dsv2.aggregates import Aggregate, Key, Part
from dsv2.aggregates.field_types import field_types, fits, shown
from dsv2.aggregates.result import DeclaredResult
from dsv2.aggregates.rows import RunningAggregate
from dsv2.base.columnar import column_names, fields_read, types_of_key
from dsv2.base.type_variables import OUT, T, T_co
from dsv2.errors import MissingLibraryError, PlanError, SchemaError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.graph.keys import key_type
from dsv2.graph.plan import KeySelector
from dsv2.graph.record_types import UNDECLARED, declared_type_of
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured, configured_global

if TYPE_CHECKING:
    from dsv2.streams.kinds import ConfiguredGlobalStream, ConfiguredStream


class KeyedAggregates(Stream[T_co], Generic[T_co]):
    """The aggregations, as a base of ``KeyedPartitionStream``."""

    def aggregate(self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part) -> ConfiguredStream[OUT]:
        """Emit the aggregates of a key with each of its records (running aggregates).

        Args:
            result: The class of the results, a NamedTuple class or dataclass.
            records: The class of the records. None: as the stream declares it.
            parts: What each field of ``result`` holds: ``Sum("amount")``, ``Count()``, ``Key()`` and so on, see
                ``dsv2.aggregates``.

        Records with columns are aggregated in columns, if the key selector is an ``operator.attrgetter``: a NamedTuple
        class or dataclass whose fields have column types, and a ``result`` with the same types. Otherwise, they are
        aggregated one by one, with the same results. ``explain`` says which, and why.

        Raises:
            PlanError: ``parts`` are not those of the fields of ``result``, or the types of the fields cannot be right.
        """
        return configured(self._builder, _running(self, result, records, parts))

    def mini_batch(self) -> MiniBatch[T_co]:
        """Aggregate records that arrive together at once: ``keyed.mini_batch().aggregate(...)``.

        (Flink SQL ``table.exec.mini-batch.enabled``.)
        """
        return MiniBatch(self)


class MiniBatch(Generic[T]):
    """A keyed stream whose records are aggregated some thousand at a time."""

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream

    def aggregate(self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part) -> ConfiguredStream[OUT]:
        """Emit the aggregates of a key with the last of its records that arrive together.

        These are some of the results of ``KeyedPartitionStream.aggregate``, whose parameters these are: the last one of
        each key in a micro-batch, and as many of the others as the sizes of tables require. State is the same.

        Raises:
            PlanError: As for ``KeyedPartitionStream.aggregate``, or the records cannot be aggregated in columns.
        """
        stream = self._stream
        declared = declare(stream._ref, result, records, parts, windowed=False)
        chosen = choose_columns(stream._ref, declared, records)
        if isinstance(chosen, str):
            raise PlanError(f"aggregate of mini-batches at {caller_location()} runs on columns, but {chosen}.")
        function = import_module("dsv2.arrow.aggregates").MiniBatchColumns(declared, *chosen)
        return configured(stream._builder, stream._add(OperatorKind.ONE_INPUT, function, "Aggregate"))


class GlobalAggregates(Stream[T_co], Generic[T_co]):
    """The aggregation, as a base of ``GlobalStream``."""

    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredGlobalStream[OUT]:
        """Emit the aggregates of all records so far with each record, as ``KeyedPartitionStream.aggregate`` does.

        There is no ``Key``, and records are aggregated one by one.
        """
        return configured_global(self._builder, _running(self, result, records, parts))


def _running(stream: Stream[Any], result: type[Any], records: type[Any] | None, parts: Mapping[str, Part]) -> InputRef:
    declared = declare(stream._ref, result, records, parts, windowed=False)
    chosen = choose_columns(stream._ref, declared, records)
    function: ProcessFunction
    if isinstance(chosen, str):
        function = RunningAggregate[Any, Any](declared, chosen)
    else:
        function = import_module("dsv2.arrow.aggregates").RunningColumns(declared, *chosen)
    return stream._add(OperatorKind.ONE_INPUT, function, "Aggregate")


def declare(
    ref: InputRef, result: type[OUT], records: type[Any] | None, parts: Mapping[str, Part], *, windowed: bool
) -> DeclaredResult[OUT]:
    return declare_for(declared_type_of(ref), ref.key_selector, result, records, parts, windowed=windowed)


def declare_for(
    declared: Any,
    selector: KeySelector | None,
    result: type[OUT],
    records: type[Any] | None,
    parts: Mapping[str, Part],
    *,
    windowed: bool,
) -> DeclaredResult[OUT]:
    """Return the declaration of an aggregation.

    Args:
        declared: The class of the records, as far as the stream declares it.
        selector: The key selector.
        result: The class of the results.
        records: The class of the records, if the program gives it.
        parts: What each field of ``result`` holds.
        windowed: Whether the results are those of windows.

    Raises:
        PlanError: The declaration is invalid.
    """
    kind = declared if records is None else records
    types = field_types(kind)
    try:
        if selector is None and any(isinstance(part, Key) for part in parts.values()):
            raise PlanError("Key() requires a keyed stream. Call key_by, or declare a result without it.")
        if types is not None:
            _check_fields(kind, types, declared, parts)
        key = object if selector is None else _type_of_key(selector, types or {})
        filters = _conditions(kind, parts)
        return DeclaredResult(result, parts, windowed=windowed, values=types, key=key, conditions=filters)
    except (PlanError, SchemaError) as error:
        raise PlanError(f"aggregate at {caller_location()}: {error}") from error


def _check_fields(kind: type[Any], types: Mapping[str, Any], declared: Any, parts: Mapping[str, Part]) -> None:
    """Check that the records have the fields that are aggregated, and those of their class."""
    for name, part in parts.items():
        for field in part.inputs if isinstance(part, Aggregate) else ():
            if field not in types and not isinstance(getattr(kind, field, None), property | cached_property):
                fields = ", ".join(types)
                raise PlanError(f"{name} aggregates {field!r}, but {kind.__qualname__} has the fields {fields}.")
    given = field_types(declared)
    if given is None or issubclass(kind, declared):
        return
    for name, hint in types.items():
        if name not in given:
            raise PlanError(
                f"the records are of {declared.__qualname__}, which has no field {name!r} of {kind.__qualname__}."
            )
        if not fits(given[name], hint):
            raise PlanError(
                f"the field {name!r} of {kind.__qualname__} is {shown(hint)}, but the records are of "
                f"{declared.__qualname__}, where it is {shown(given[name])}."
            )


def _conditions(kind: Any, parts: Mapping[str, Part]) -> dict[str, Any]:
    """The filters that are expressions. Aggregates with the same one share it, so it is evaluated once."""
    found = {
        name: part.filter for name, part in parts.items() if isinstance(part, Aggregate) and part.filter is not None
    }
    expressions = {name: one for name, one in found.items() if not callable(one)}
    if expressions and kind is UNDECLARED:
        raise PlanError(
            "a filter is an expression, but the class of the records is not declared. Pass it after the class of the "
            "results."
        )
    made: dict[int, Any] = {}
    for one in expressions.values():
        if id(one) not in made:
            made[id(one)] = import_module("dsv2.arrow.expressions").Condition(kind, one)
    return {name: made[id(one)] for name, one in expressions.items()}


def _type_of_key(selector: KeySelector, types: Mapping[str, Any]) -> Any:
    names = column_names(selector)
    if names is None:
        return key_type(selector)
    parts = types_of_key(names, types)
    return parts[0] if len(parts) == 1 else tuple[tuple(parts)]  # type: ignore[misc]


def choose_columns(
    ref: InputRef, result: DeclaredResult[Any], records: type[Any] | None
) -> tuple[type[Any], Sequence[str]] | str:
    """Return the class of the records and the fields of the key, for columns; or why they are aggregated one by one."""
    if ref.key_selector is None:
        return "the stream has no keys"
    names = column_names(ref.key_selector)
    if names is None:
        return "the key selector is not an operator.attrgetter"
    kind = declared_type_of(ref) if records is None else records
    if kind is UNDECLARED:
        return "the class of the records is not declared: pass it after the class of the results"
    types = field_types(kind)
    if types is None or not types.keys() >= {*fields_read(names)}:
        return f"the records are {getattr(kind, '__qualname__', kind)}, which has no columns"
    try:
        reason: str | None = import_module("dsv2.arrow.aggregates").why_not_columns(result, kind, names)
    except MissingLibraryError:
        return "pyarrow or numpy is not installed"
    return (kind, names) if reason is None else reason
