"""Aggregates of the last records of each record: ``keyed.over(rows=10).aggregate(...)``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from dsv2.aggregates import Lag, Lead, Part
from dsv2.aggregates.field_types import field_types, fits, shown
from dsv2.aggregates.neighbours import Neighbour
from dsv2.aggregates.partial_results import defaults_of
from dsv2.base.derived_classes import derived_class
from dsv2.base.optional_types import without_none
from dsv2.base.type_variables import OUT, T, T_co
from dsv2.checks.arguments import as_milliseconds, is_whole_number
from dsv2.errors import PlanError, SchemaError
from dsv2.functions import ProcessFunction
from dsv2.graph import InputRef, OperatorKind
from dsv2.graph.builder import caller_location
from dsv2.state import StateTtl
from dsv2.streams.aggregates import choose_columns, declare
from dsv2.streams.arguments import ttl_of
from dsv2.streams.base import Stream
from dsv2.streams.outputs import configured
from dsv2.streams.ranking import keyed_columns

if TYPE_CHECKING:
    from dsv2.streams.kinds import ConfiguredStream


class KeyedOver(Stream[T_co], Generic[T_co]):
    """The operator, as a base of ``KeyedPartitionStream``."""

    def over(
        self, *, rows: int | None = None, range: timedelta | None = None, ttl: timedelta | StateTtl | None = None
    ) -> OverStream[T_co]:
        """Aggregate, for each record, the last records of its key in event-time order, with itself.

        (SQL ``OVER (PARTITION BY key ORDER BY rowtime ROWS BETWEEN n - 1 PRECEDING AND CURRENT ROW)``, or ``RANGE``.)
        Give either ``rows`` or ``range``.

        Args:
            rows: The number of records.
            range: By how much they are at most older. All records with the timestamp of the record belong to them.
            ttl: The time for which the last records of a key are remembered, for ``rows``, ``Lag`` and ``Lead``, in
                processing time; a ``StateTtl`` for other rules. None: for ever.

        Raises:
            PlanError: Not exactly one of ``rows`` and ``range`` is given, or ``rows`` is not a number of at least 1.
            ConfigurationError: ``range`` or ``ttl`` is invalid.
        """
        where = f"over at {caller_location()}"
        if (rows is None) == (range is None):
            raise PlanError(f"{where} takes either rows or range.")
        if rows is not None and (not is_whole_number(rows) or rows < 1):
            raise PlanError(f"{where} takes a number of rows of at least 1, not {rows!r}.")
        in_ms = None if range is None else as_milliseconds(range, "range", at_least=0)
        return OverStream(self, rows, in_ms, ttl_of(ttl))


class OverStream(Generic[T]):
    """A keyed stream whose records are aggregated with those before them."""

    def __init__(self, stream: Stream[T], rows: int | None, range: int | None, ttl: StateTtl | None) -> None:
        self._stream = stream
        self._rows = rows
        self._range = range
        self._ttl = ttl

    def aggregate(self, result: type[OUT], records: type[Any] | None = None, /, **parts: Part) -> ConfiguredStream[OUT]:
        """Emit each record with its aggregates when event time has reached its timestamp, in the order of timestamps.

        It always runs on columns: the key selector must be an ``operator.attrgetter``, and both classes need column
        types. Records that are late are dropped and counted, as those of windows.

        Args:
            result: The class of the results, a NamedTuple class or dataclass.
            records: The class of the records. None: as the stream declares it.
            parts: The content of fields of ``result``: ``Mean("price")``, ``Lag("price")``, ``Key()`` and so on, see
                ``dsv2.aggregates``. Other fields have the value of the same field of the record.

        Raises:
            PlanError: As for ``KeyedPartitionStream.aggregate``, or the records cannot be aggregated in columns.
        """
        return configured(self._stream._builder, self._added(result, records, parts))

    def _added(self, result: type[Any], records: type[Any] | None, parts: dict[str, Part]) -> InputRef:
        stream, where = self._stream, f"aggregate at {caller_location()}"
        kind, names = keyed_columns(stream, where, records)
        types = field_types(result)
        if types is None:
            raise PlanError(f"{where}: the class of the results must be a NamedTuple class or a dataclass.")
        unknown = [name for name in parts if name not in types]
        if unknown:
            raise PlanError(f"{where}: {result.__qualname__} has no field {unknown[0]!r}.")
        made = import_module("dsv2.arrow.over")
        near = {name: part for name, part in parts.items() if isinstance(part, Neighbour)}
        if near:
            _check_neighbours(near, result, kind, where)
        elif self._range is not None and self._ttl is not None:
            raise PlanError(f"{where}: rows of a range need no ttl. They are forgotten when event time has passed it.")
        aggregates = {name: part for name, part in parts.items() if name not in near}
        held = tuple((name, types[name]) for name in types if name in aggregates)
        declared = declare(stream._ref, derived_class(result, "aggregates", held), kind, aggregates, windowed=False)
        chosen = choose_columns(stream._ref, declared, kind)
        if isinstance(chosen, str):
            raise PlanError(f"{where} runs on columns, but {chosen}.")
        try:
            misfit = import_module("dsv2.arrow.keyed_operator").check_kept(kind, result, parts)
        except SchemaError as error:
            raise PlanError(f"{where}: {error}") from error
        if misfit is not None:
            raise PlanError(f"{where}: {misfit}")
        lag, lead = (
            max((part.offset for part in near.values() if isinstance(part, one)), default=0) for one in (Lag, Lead)
        )
        frame = made.OverFrame(self._rows, self._range, lag, lead)
        function: ProcessFunction = made.OverColumns(declared, kind, names, result, frame, near, self._ttl)
        return stream._add(OperatorKind.ONE_INPUT, function, "Over")


def _check_neighbours(near: Mapping[str, Neighbour], result: type[Any], kind: type[Any], where: str) -> None:
    types, given, defaults = field_types(result) or {}, field_types(kind) or {}, defaults_of(result)
    for name, part in near.items():
        if part.field not in given:
            raise PlanError(f"{where}: {kind.__qualname__} has no field {part.field!r}, which {part} reads.")
        if not fits(given[part.field], types[name]):
            raise PlanError(
                f"{where}: {name} of {result.__qualname__} is {shown(types[name])}, but {part} is "
                f"{shown(given[part.field])}."
            )
        if not without_none(types[name])[1] and name not in defaults:
            raise PlanError(f"{where}: {name} of {result.__qualname__} must permit None or have a default for {part}.")
