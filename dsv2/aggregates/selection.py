"""The value of the record with the greatest or least value of another field, and all values of a field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from dsv2.aggregates.result_field import Aggregate, Fold, Max, Min, is_nan
from dsv2.base.optional_types import without_none
from dsv2.checks.arguments import check_at_least_one


@dataclass(frozen=True)
class ArgMax(Aggregate):
    """The value of a field in the record with the greatest value of another one: of several, the first that arrived.

    Records where one of the two is None are left out. NaN is greater than all numbers.

    Args:
        field: The name of the field.
        by: The name of the field that is compared.
        filter: As for ``Aggregate``.
    """

    _: KW_ONLY
    by: str
    extreme: ClassVar[Fold] = Max("")

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.field, self.by

    @property
    def empty(self) -> tuple[Any, ...]:
        return None, None

    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"value": values.get(self.field, object), "by": values.get(self.by, object)}

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return values.get(self.field, object)

    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        _, old = before
        if old is None:
            return value  # type: ignore[no-any-return]
        return before if self.extreme.fold(old, value[1]) is old or is_nan(old) else value

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        return first if second[1] is None else self.add(first, second)

    def result(self, accumulators: Sequence[Any]) -> Any:
        return accumulators[0]


@dataclass(frozen=True)
class ArgMin(ArgMax):
    """The value of a field in the record with the least value of another one, see ``ArgMax``. NaN is the least."""

    extreme: ClassVar[Fold] = Min("")


@dataclass(frozen=True)
class Collect(Fold):
    """The values of a field as a list, in the order of arrival.

    Args:
        field: As for ``Aggregate``.
        limit: The number of values after which all others are left out.
        filter: As for ``Aggregate``.

    Raises:
        ConfigurationError: ``limit`` is not an int of at least 1.
    """

    _: KW_ONLY
    limit: int | None = None
    how: ClassVar[str] = "collect"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least_one(limit=self.limit)

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return list[without_none(values.get(self.field, object))[0]]  # type: ignore[misc]

    def first(self, value: Any) -> list[Any]:
        return [value]

    def fold(self, before: list[Any], value: Any) -> list[Any]:
        return before if len(before) == self.limit else [*before, value]

    def merged(self, first: list[Any], second: list[Any]) -> list[Any]:
        return [*first, *second][: self.limit]
