"""Joins with declared results: a class, and the side from which each of its fields comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from typing import Any, Generic

from dsv2.aggregates import WindowEnd, WindowStart
from dsv2.aggregates.field_types import field_types, fits, shown
from dsv2.base.columnar import ComputedKey, column_names
from dsv2.base.optional_types import without_none
from dsv2.base.type_variables import OUT
from dsv2.errors import MissingLibraryError, PlanError
from dsv2.extension.join.functions import JoinType, WindowJoinFunction, not_keyed
from dsv2.extension.join.modes import IntervalMode, JoinMode, WindowMode
from dsv2.extension.join.record_joins import ENDS_WITH_FIELD, JoinOptions, record_join
from dsv2.extension.window.contexts import WindowContext
from dsv2.functions import ProcessFunction
from dsv2.graph import KeySelector
from dsv2.graph.builder import caller_location
from dsv2.graph.record_types import UNDECLARED
from dsv2.model.context import Collector, RuntimeContext
from dsv2.spi import TwoInputDeclaration


@dataclass(frozen=True)
class SideField:
    """A field of one of the two partners."""

    field: str

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise PlanError(f"join: {type(self).__name__} takes the name of a field, not {self.field!r}.")


class Left(SideField):
    """A field of the left record."""


class Right(SideField):
    """A field of the right record."""


@dataclass(frozen=True)
class KeyField:
    """A part of the key, which is a field of both sides.

    Attributes:
        index: The part.
        field: The field.
    """

    index: int
    field: str


Source = Left | Right | WindowStart | WindowEnd
"""The content of a field of the result, as the program declares it."""
ResultField = Source | KeyField
"""The content of a field of the result."""

_WITHOUT_RIGHT = (JoinType.SEMI, JoinType.ANTI)
_MISSING = {
    Left: (JoinType.RIGHT, JoinType.FULL),
    Right: (JoinType.LEFT, JoinType.FULL),
}
"""The join types in which a side may be missing."""


@dataclass(frozen=True)
class DeclaredJoin(TwoInputDeclaration, Generic[OUT]):
    """The arguments of ``join`` with a class of results. The streams that it joins choose how it runs.

    Attributes:
        result: The class of the results.
        mode: The mode.
        join_type: The join type.
        fields: The fields of the result that the program declares.
        records: The classes of the left and the right records. None: as the streams declare them.
        options: The other arguments of ``join``.
    """

    result: type[OUT]
    mode: JoinMode
    join_type: JoinType
    fields: Mapping[str, object]
    records: tuple[type[Any] | None, type[Any] | None]
    options: JoinOptions

    def function_of(
        self, types: Sequence[Any], selectors: Sequence[KeySelector | None], *, keeps_keys: bool
    ) -> ProcessFunction:
        known = [None if kind is UNDECLARED else kind for kind in types]
        kinds = [given or kind for given, kind in zip(self.records, known, strict=True)]
        names = [None if selector is None else column_names(selector) for selector in selectors]
        try:
            fields = [None if isinstance(of, ComputedKey) else of for of in names]
            sources = self.sources(kinds[0], kinds[1], fields)
        except PlanError as error:
            raise PlanError(f"join at {caller_location()}: {error}") from error
        made: ProcessFunction | str
        if keeps_keys:
            made = "the result stays keyed"
        elif None in names:
            made = "a key selector is not an operator.attrgetter"
        elif None in kinds:
            made = "the class of the records of a side is not declared"
        else:
            try:
                made = import_module("dsv2.arrow.joins").column_join(self, sources, kinds, names)
            except MissingLibraryError:
                made = "pyarrow or numpy is not installed"
        if not isinstance(made, str):
            return made
        if isinstance(self.mode, IntervalMode) and isinstance(self.mode.upper, str):
            raise PlanError(f"join at {caller_location()}: {ENDS_WITH_FIELD}, which is not possible here: {made}.")
        return record_join(DeclaredPairs(self.result, sources, made), self.mode, self.join_type, self.options)

    @property
    def not_keyed(self) -> PlanError:
        return not_keyed("A join")

    def sources(self, left: object, right: object, keys: Sequence[Sequence[str] | None]) -> dict[str, ResultField]:
        """Return what each field of the result holds, in the order of the fields.

        Args:
            left: The class of the left records, if it is known.
            right: That of the right ones.
            keys: The fields that are the key, on both sides, if they are known.

        Raises:
            PlanError: A field is unknown, or is not that of one side, or has another type.
        """
        types = field_types(self.result)
        if types is None:
            raise PlanError(f"the class of the results must be a NamedTuple class or a dataclass, not {self.result!r}.")
        unknown = next((name for name in self.fields if name not in types), None)
        if unknown is not None:
            raise PlanError(f"{self.result.__qualname__} has no field {unknown!r}.")
        sides = {Left: (left, field_types(left)), Right: (right, field_types(right))}
        left_keys, right_keys = keys
        shared = {
            name: index
            for index, (name, other) in enumerate(zip(left_keys or (), right_keys or (), strict=False))
            if name == other
        }
        found = {name: self._source(name, sides, shared) for name in types}
        for name, source in found.items():
            self._check(name, types[name], source, sides)
        return found

    def _source(
        self, name: str, sides: Mapping[Any, tuple[object, Mapping[str, Any] | None]], keys: Mapping[str, int]
    ) -> ResultField:
        if name in self.fields:
            given = self.fields[name]
            if not isinstance(given, Source):
                raise PlanError(f"{name}={given!r} is not a field of a side. Use Left(field) or Right(field).")
            return given
        if name in keys:
            return KeyField(keys[name], name)
        having = [side for side, (_, types) in sides.items() if types is None or name in types]
        if Right in having and self.join_type in _WITHOUT_RIGHT:
            having.remove(Right)
        if len(having) == 1 and all(types is not None for _, types in sides.values()):
            chosen: Source = having[0](name)
            return chosen
        reason = "no side has a field of this name" if not having else "it may come from both sides"
        raise PlanError(
            f"the field {name!r} of {self.result.__qualname__} is not declared, and {reason}. Declare it: "
            f"{name}=Left(field) or {name}=Right(field)."
        )

    def _check(
        self, name: str, wanted: Any, source: ResultField, sides: Mapping[Any, tuple[object, Mapping[str, Any] | None]]
    ) -> None:
        held: Any
        if isinstance(source, KeyField):
            source = Left(source.field)
            held = (sides[Left][1] or {}).get(source.field, object)
        elif not isinstance(source, SideField):
            if not isinstance(self.mode, WindowMode):
                raise PlanError(f"{name} is a bound of a window, but the join has none. Use JoinMode.window(strategy).")
            held = int
        else:
            if isinstance(source, Right) and self.join_type in _WITHOUT_RIGHT:
                raise PlanError(f"{name} is a field of the right record, which {self.join_type.name} joins leave out.")
            kind, types = sides[type(source)]
            if types is None:
                return
            attribute = getattr(kind, source.field, None)
            if source.field not in types and not isinstance(attribute, property | cached_property):
                fields = ", ".join(types)
                raise PlanError(
                    f"{name} is {source}, but {getattr(kind, '__qualname__', kind)} has the fields {fields}."
                )
            held = types.get(source.field, object)
            if self.join_type in _MISSING[type(source)] and not without_none(wanted)[1]:
                raise PlanError(
                    f"{name} of {self.result.__qualname__} is {source}, which is None without a partner in "
                    f"{self.join_type.name} joins. Declare the field as {shown(wanted)} | None."
                )
        if not fits(held, wanted):
            raise PlanError(
                f"{name} of {self.result.__qualname__} is {shown(wanted)}, but {source} is {shown(held)}. Declare the "
                f"field as {shown(held)}."
            )


class DeclaredPairs(WindowJoinFunction[Any, Any, OUT], Generic[OUT]):
    """Emits the result of a pair, record by record.

    Args:
        result: The class of the results.
        sources: What each of its fields holds.
        why: The reason why the join does not run on columns.
    """

    def __init__(self, result: type[OUT], sources: Mapping[str, ResultField], why: str) -> None:
        self.result = result
        self.sources = dict(sources)
        self.why = why

    def process_record(self, left: Any, right: Any, output: Collector[OUT], ctx: RuntimeContext) -> None:
        output.collect(self._result(left, right, None))

    def process_record_in_window(
        self, left: Any, right: Any, window: WindowContext, output: Collector[OUT], ctx: RuntimeContext
    ) -> None:
        output.collect(self._result(left, right, window))

    def _result(self, left: Any, right: Any, window: WindowContext | None) -> OUT:
        return self.result(**{name: _value(source, left, right, window) for name, source in self.sources.items()})


def _value(source: ResultField, left: Any, right: Any, window: WindowContext | None) -> Any:
    match source:
        case WindowStart():
            assert window is not None
            return window.start_time
        case WindowEnd():
            assert window is not None
            return window.end_time
    is_left = isinstance(source, Left) or (isinstance(source, KeyField) and left is not None)
    record = left if is_left else right
    return None if record is None else attrgetter(source.field)(record)
