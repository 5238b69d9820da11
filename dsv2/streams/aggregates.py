"""Declared aggregates of keyed and global streams."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from dsv2.aggregates import Key, Part
from dsv2.aggregates.field_types import field_types, fits, shown
from dsv2.aggregates.result import DeclaredResult
from dsv2.aggregates.result_field import FieldPart
from dsv2.aggregates.rows import EmitWindow, FoldedRecords, RunningAggregate
from dsv2.base.columnar import column_names
from dsv2.checks.missing_methods import missing_method
from dsv2.errors import PlanError
from dsv2.functions import ProcessFunction
from dsv2.graph import Exchange, InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.graph.keys import key_type
from dsv2.graph.plan import KeySelector
from dsv2.graph.record_types import UNDECLARED, declared_type_of
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured, configured_global

if TYPE_CHECKING:
    from dsv2.extension.window import WindowStrategy
    from dsv2.streams.kinds import ConfiguredGlobalStream, ConfiguredStream


T_co = TypeVar("T_co", covariant=True)
OUT = TypeVar("OUT")

_WITH_FUNCTION = "Call aggregate, or keyed.process(window(strategy, function)) of dsv2.extension.window."
_INSTEAD = dict.fromkeys(("process", "reduce", "apply", "map", "sum", "count", "min", "max"), _WITH_FUNCTION)


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

    def window(self, strategy: WindowStrategy) -> WindowedStream[T_co]:
        """Divide the records of each key into windows, for ``aggregate``."""
        return WindowedStream(self, strategy)


class GlobalAggregates(Stream[T_co], Generic[T_co]):
    """The aggregation, as a base of ``GlobalStream``."""

    def aggregate(
        self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part
    ) -> ConfiguredGlobalStream[OUT]:
        """Emit the aggregates of all records so far with each record, as ``KeyedPartitionStream.aggregate`` does.

        There is no ``Key``, and records are aggregated one by one.
        """
        return configured_global(self._builder, _running(self, result, records, parts))


class WindowedStream(Generic[T_co]):
    """A keyed stream whose records are in windows."""

    def __init__(self, stream: Stream[T_co], strategy: WindowStrategy) -> None:
        from dsv2.extension.window import WindowStrategy

        if not isinstance(strategy, WindowStrategy):
            raise PlanError(f"window at {caller_location()} takes a WindowStrategy, not {strategy!r}.")
        self._stream = stream
        self._strategy = strategy

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, "WindowedStream", name, _INSTEAD)

    def aggregate(self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part) -> ConfiguredStream[OUT]:
        """Emit the aggregates of each window when it fires, as ``dsv2.extension.window.aggregate`` does.

        The arguments and errors are those of ``KeyedPartitionStream.aggregate``. Tumbling and sliding windows in event
        time without allowed lateness, early firing and triggers are aggregated in columns. Counts, and sums, means,
        minima and maxima of whole numbers are also combined before the exchange, if the result has the key.
        """
        from dsv2.extension.window import aggregate

        declared = _declare(self._stream._ref, result, records, parts, windowed=True)
        chosen = _columns_of_windows(self._strategy) or _choose(self._stream._ref, declared, records)
        if isinstance(chosen, str):
            function = aggregate(self._strategy, FoldedRecords[Any](declared), EmitWindow(declared, chosen))
            return _configured(self._stream, function)
        made = import_module("dsv2.arrow.window_combiner").combined(declared, *chosen, self._strategy)
        if made is None or self._stream._ref.exchange is not Exchange.HASH:
            return _configured(
                self._stream, import_module("dsv2.arrow.aggregates").WindowColumns(declared, *chosen, self._strategy)
            )
        before, select, after = made
        ref = self._stream._ref
        node = self._stream._builder.add(OperatorKind.ONE_INPUT, before, "Combine", (InputRef(ref.node, ref.output),))
        sent = InputRef(node, 0, Exchange.HASH, select, ref.key_version)
        return _configured(Stream[Any](self._stream._builder, sent), after)


def _running(stream: Stream[Any], result: type[Any], records: type[Any] | None, parts: Mapping[str, Part]) -> InputRef:
    declared = _declare(stream._ref, result, records, parts, windowed=False)
    chosen = _choose(stream._ref, declared, records)
    function: ProcessFunction
    if isinstance(chosen, str):
        function = RunningAggregate[Any, Any](declared, chosen)
    else:
        function = import_module("dsv2.arrow.aggregates").RunningColumns(declared, *chosen)
    return stream._add(OperatorKind.ONE_INPUT, function, "Aggregate")


def _declare(
    ref: InputRef, result: type[OUT], records: type[Any] | None, parts: Mapping[str, Part], *, windowed: bool
) -> DeclaredResult[OUT]:
    declared = declared_type_of(ref)
    kind = declared if records is None else records
    types = field_types(kind)
    try:
        if ref.key_selector is None and any(isinstance(part, Key) for part in parts.values()):
            raise PlanError("a global stream has no Key(). Call key_by, or declare a result without it.")
        if types is not None:
            _check_fields(kind, types, declared, parts)
        key = object if ref.key_selector is None else _type_of_key(ref.key_selector, types or {})
        return DeclaredResult(result, parts, windowed=windowed, values=types, key=key)
    except PlanError as error:
        raise PlanError(f"aggregate at {caller_location()}: {error}") from error


def _check_fields(kind: type[Any], types: Mapping[str, Any], declared: Any, parts: Mapping[str, Part]) -> None:
    """Check that the records have the fields that are aggregated, and those of their class."""
    for name, part in parts.items():
        field = part.field if isinstance(part, FieldPart) else ""
        if field and field not in types and not isinstance(getattr(kind, field, None), property | cached_property):
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


def _type_of_key(selector: KeySelector, types: Mapping[str, Any]) -> Any:
    names = column_names(selector)
    if names is None:
        return key_type(selector)
    parts = [types.get(name, object) for name in names]
    return parts[0] if len(parts) == 1 else tuple[tuple(parts)]  # type: ignore[misc]


def _choose(
    ref: InputRef, result: DeclaredResult[Any], records: type[Any] | None
) -> tuple[type[Any], tuple[str, ...]] | str:
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
    if types is None or not set(names) <= types.keys():
        return f"the records are {getattr(kind, '__qualname__', kind)}, which has no columns"
    try:
        reason: str | None = import_module("dsv2.arrow.aggregates").why_not_columns(result, kind, names)
    except ImportError:
        return "pyarrow is not installed"
    return (kind, names) if reason is None else reason


def _columns_of_windows(strategy: WindowStrategy) -> str | None:
    """Return why windows of a strategy are not aggregated in columns; None if they are."""
    from dsv2.extension.window.strategy import SlidingWindowStrategy, TimeType

    if not isinstance(strategy, SlidingWindowStrategy) or strategy.time_type is not TimeType.EVENT:
        return "the windows are not tumbling or sliding windows in event time"
    if strategy.allowed_lateness or strategy.early_firing is not None or strategy.trigger is not None:
        return "the windows have allowed lateness, early firing or a trigger"
    return None


def _configured(stream: Stream[Any], function: ProcessFunction) -> ConfiguredStream[Any]:
    return configured(stream._builder, stream._add(OperatorKind.ONE_INPUT, function, "Aggregate"))
