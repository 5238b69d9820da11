"""The result of an aggregation: its class, and what each field holds. Also its use record by record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Generic

from dsv2.aggregates.field_types import field_types, fits, held_type, shown
from dsv2.aggregates.neighbours import Neighbour
from dsv2.aggregates.partial_results import Partial, defaults_of
from dsv2.aggregates.result_field import Aggregate, Fold, Key, Part, WindowEnd, WindowStart
from dsv2.base.optional_types import without_none
from dsv2.base.type_variables import OUT
from dsv2.errors import PlanError, SchemaError


class DeclaredResult(Generic[OUT]):
    """The declaration of an aggregation.

    Args:
        kind: The class of the results, a NamedTuple class or dataclass.
        parts: What each of its fields holds.
        windowed: Whether the results are those of windows.
        values: The types of the fields of the records, as far as they are known.
        key: The type of the keys, or ``object``.
        conditions: The filters that are expressions, by field of the result: a ``Condition`` of ``dsv2.arrow``.

    Raises:
        PlanError: ``kind`` has no fields, or they are not those of ``parts``, or one has not the type of what it holds,
            or two aggregates would be stored under the same name.
    """

    def __init__(
        self,
        kind: type[OUT],
        parts: Mapping[str, Part],
        *,
        windowed: bool,
        values: Mapping[str, Any] | None = None,
        key: Any = object,
        conditions: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind = kind
        self.conditions = conditions or {}
        types = field_types(kind)
        if types is None:
            raise PlanError(f"the class of the results must be a NamedTuple class or a dataclass, not {kind!r}.")
        if types.keys() != parts.keys():
            missing = ", ".join(repr(name) for name in types if name not in parts) or "no field"
            unknown = ", ".join(repr(name) for name in parts if name not in types) or "no other"
            raise PlanError(
                f"say for each field of {kind.__qualname__} what it holds. Missing: {missing}; unknown: {unknown}."
            )
        for name, part in parts.items():
            if not isinstance(part, Part):
                raise PlanError(
                    f"{name}={part!r} is not an aggregate. Use Sum, Count, Mean, Min, Max or others of dsv2.aggregates."
                )
            if isinstance(part, Neighbour):
                raise PlanError(f"{name}={part} is a value of another record. Call over(rows=...).aggregate.")
            if isinstance(part, WindowStart | WindowEnd) and not windowed:
                raise PlanError(f"{name} is a bound of a window, but there is none. Call window(...) first.")
            held = held_type(part, values or {}, key)
            if not fits(held, types[name]):
                raise PlanError(
                    f"{name} of {kind.__qualname__} is {shown(types[name])}, but {part} is {shown(held)}. Declare the "
                    f"field as {shown(held)}."
                )
        self.parts: dict[str, Part] = {name: parts[name] for name in types}
        self.partial = Partial(kind, types, self.parts, values or {})
        self._required = [name for name, kind in types.items() if not without_none(kind)[1]]
        given = defaults_of(kind)
        self.defaults = {name: given[name] for name in self._required if name in given}
        """The values of aggregates without values, if the field must not be None."""

    @property
    def declared(self) -> dict[str, str]:
        """The content of each field, as the program declares it."""
        return {name: str(part) for name, part in self.parts.items()}

    def merge(self, first: Any, second: Any) -> Any:
        """Return the partial result of two."""
        found: list[Any] = []
        for name, part in self.partial.aggregates.items():
            place = self.partial.places[name]
            found += part.merge(first[place], second[place])
        return self.partial.kind._make(found)

    def finished(self, partial: Any, key: Any, start: int = -1, end: int = -1) -> OUT:
        """Return the result of a key.

        Raises:
            SchemaError: An aggregate has no values, and its field is not optional and has no default.
        """
        values: dict[str, Any] = {}
        for name, part in self.parts.items():
            match part:
                case Fold():
                    values[name] = partial[self.partial.places[name].start]
                case Aggregate():
                    values[name] = part.result(partial[self.partial.places[name]])
                case Key():
                    values[name] = part.of(key)
                case WindowStart():
                    values[name] = start
                case WindowEnd():
                    values[name] = end
        return self.of_values(values)

    def of_values(self, values: dict[str, Any]) -> OUT:
        """Return the result with these fields. Defaults replace those that must not be None.

        Raises:
            SchemaError: A field is None, is not optional and has no default.
        """
        for name in self._required:
            if values[name] is None:
                if name not in self.defaults:
                    raise SchemaError(f"Field {name!r} of {self.kind.__qualname__} is None in a record.")
                values[name] = self.defaults[name]
        return self.kind(**values)


class Adder:
    """Adds records to partial results.

    Args:
        result: The declaration.
    """

    def __init__(self, result: DeclaredResult[Any]) -> None:
        self._result = result
        self._folds: list[tuple[int, Fold, Callable[[Any], Any]]] = []
        self._others: list[tuple[slice, Aggregate, Callable[[Any], Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return Adder, (self._result,)

    def prepare(self, records: Sequence[Any]) -> None:
        """Evaluate the filters that are expressions for records that are about to be added. None: forget them."""
        for condition in set(self._result.conditions.values()):
            condition.prepare(records)

    def add(self, record: Any, before: Any) -> Any:
        """Return the partial result with one more record."""
        if not self._folds and not self._others:
            self._begin(record)
        after = list(before)
        for place, part, get in self._folds:
            value = get(record)
            if value is not None:
                old = after[place]
                after[place] = part.first(value) if old is None else part.fold(old, value)
        for places, aggregate, get in self._others:
            value = get(record)
            if value is not None:
                after[places] = aggregate.add(after[places], value)
        return self._result.partial.kind._make(after)

    def _begin(self, record: Any) -> None:
        partial = self._result.partial
        for name, part in partial.aggregates.items():
            place, get = partial.places[name], self.reader(name, part, record)
            if isinstance(part, Fold):
                self._folds.append((place.start, part, get))
            else:
                self._others.append((place, part, get))

    def reader(self, name: str, part: Aggregate, record: Any) -> Callable[[Any], Any]:
        """Return the reader of the value that an aggregate gets from a record; None leaves the record out.

        Args:
            name: The field of the result.
            part: The aggregate.
            record: One of the records.
        """
        get = _getter(part.inputs, isinstance(record, dict))
        if part.filter is None:
            return get
        given: Any = part.filter
        conditions = self._result.conditions
        chooses = conditions[name].of_record if name in conditions else given
        return lambda record: get(record) if chooses(record) else None


def _getter(inputs: Sequence[str], is_dict: bool) -> Callable[[Any], Any]:
    if not inputs:
        return _one
    get: Callable[[Any], Any] = itemgetter(*inputs) if is_dict else attrgetter(*inputs)
    if len(inputs) == 1:
        return get

    def all_of(record: Any) -> Any:
        values = get(record)
        return None if None in values else values

    return all_of


def _one(record: Any) -> int:
    return 1
