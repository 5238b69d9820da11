"""Aggregates of the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, get_args, get_origin

from dsv2.aggregates.field_types import field_types
from dsv2.aggregates.result_field import Aggregate
from dsv2.errors import PlanError
from dsv2.state import AggregateFunction


@dataclass(frozen=True)
class Custom(Aggregate):
    """An aggregate of the program: an ``AggregateFunction`` whose values are those of a field.

    Its accumulator is the one that ``AggregateFunction[float, Sums, float]`` declares. Each field of a NamedTuple class
    or dataclass is stored as a field of its own. If all of them can be columns, it runs on columns, value by value.

    Args:
        field: As for ``Aggregate``.
        function: The function. Session windows require ``merge``.
        filter: As for ``Aggregate``.

    Raises:
        PlanError: An argument is of another type.
    """

    function: AggregateFunction[Any, Any, Any]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.function, AggregateFunction):
            raise PlanError(f"aggregate: Custom takes an AggregateFunction, not {self.function!r}.")

    @property
    def empty(self) -> tuple[Any, ...]:
        return (None,) * len(self.accumulators({}))

    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        fields = self._fields
        if fields is None:
            return {"accumulator": self._types[1]}
        return fields

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return self._types[2]

    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        return self._stored(self.function.add(value, self._accumulator(before)))

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        return self._stored(self.function.merge(self._accumulator(first), self._accumulator(second)))

    def result(self, accumulators: Sequence[Any]) -> Any:
        return self.function.get_result(self._accumulator(accumulators))

    @property
    def _types(self) -> tuple[Any, ...]:
        """The types of the values, the accumulator and the result; ``object`` if they are not declared."""
        for kind in type(self.function).__mro__:
            for base in getattr(kind, "__orig_bases__", ()):
                if get_origin(base) is AggregateFunction:
                    return tuple(object if isinstance(one, TypeVar) else one for one in get_args(base))
        return object, object, object

    @property
    def _fields(self) -> dict[str, Any] | None:
        return field_types(self._types[1])

    def _accumulator(self, stored: Sequence[Any]) -> Any:
        if all(value is None for value in stored):
            return self.function.create_accumulator()
        return stored[0] if self._fields is None else self._types[1](**dict(zip(self._fields, stored, strict=True)))

    def _stored(self, accumulator: Any) -> Sequence[Any]:
        return (accumulator,) if self._fields is None else [getattr(accumulator, name) for name in self._fields]
