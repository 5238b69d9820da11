"""The records that hold partial results: those of some records of a key, in state and between operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Optional

from dsv2.aggregates.result_field import Aggregate, Count, Fold, Part
from dsv2.base.derived_classes import derived_class
from dsv2.errors import PlanError


class Partial:
    """The form of partial results: the accumulators of all aggregates.

    Their class belongs to the module of the class of the results, because state names it. Like any class of state it
    may change: an accumulator is found by its name, and a new one has a default if the field of the result has one.

    Args:
        result: The class of the results.
        types: The types of its fields.
        parts: What each of them holds.
        values: The types of the fields of the records, as far as they are known.

    Raises:
        PlanError: Two accumulators have the same name.
    """

    def __init__(
        self, result: type[Any], types: Mapping[str, Any], parts: Mapping[str, Part], values: Mapping[str, Any]
    ) -> None:
        of_result = defaults_of(result)
        found = {name: part for name, part in parts.items() if isinstance(part, Aggregate)}
        self.aggregates: dict[str, Aggregate] = {
            name: found[name] for name in sorted(found, key=of_result.__contains__)
        } or {"records": Count()}
        """The fields of the result that are aggregated. If there are none, the records are counted."""
        self.places: dict[str, slice] = {}
        """The accumulators of each of them in a partial result."""
        fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for name, part in self.aggregates.items():
            first = len(fields)
            for (suffix, kind), value in zip(part.accumulators(values).items(), part.empty, strict=True):
                stored = (f"{name}__{suffix}" if suffix else name).lstrip("_")
                if stored in fields:
                    raise PlanError(f"state would have two fields {stored!r}. Rename {name} of {result.__qualname__}.")
                fields[stored] = Optional[types.get(name, int) if isinstance(part, Fold) else kind]  # noqa: UP045
                if name in of_result:
                    defaults[stored] = of_result[name] if isinstance(part, Fold) else value
            self.places[name] = slice(first, len(fields))
        self.kind: Any = derived_class(result, "aggregates", tuple(fields.items()), defaults)
        """The class of partial results, a NamedTuple class."""
        self.empty: Any = self.kind._make(value for part in self.aggregates.values() for value in part.empty)
        """The partial result of no records."""


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """Return the defaults of the fields of a NamedTuple class or dataclass."""
    if not dataclasses.is_dataclass(kind):
        return dict(kind._field_defaults)
    missing = dataclasses.MISSING
    found = {one.name: one.default for one in dataclasses.fields(kind) if one.default is not missing}
    made = {one.name: one.default_factory() for one in dataclasses.fields(kind) if one.default_factory is not missing}
    return {**found, **made}
