"""The records that hold partial results: those of some records of a key, in state and between operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dsv2.aggregates.field_types import field_types
from dsv2.aggregates.result_field import Aggregate, Count, Mean, Part, Sum
from dsv2.base.derived_classes import derived_class, unused_name
from dsv2.base.optional_types import without_none


class Partial(NamedTuple):
    """The form of a partial result.

    Attributes:
        kind: Its class.
        parts: The content of each of its fields.
        means: For each mean the fields with its sum and its count.
    """

    kind: type[Any]
    parts: dict[str, Part]
    means: dict[str, tuple[str, str]]

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """The fields that are aggregated."""
        return {name: part for name, part in self.parts.items() if isinstance(part, Aggregate)}


def partial_of(kind: type, types: Mapping[str, Any], parts: Mapping[str, Part], values: Mapping[str, Any]) -> Partial:
    """Return what the partial results of an aggregation hold.

    They have the class of the results. If that has means, they have a class with their sums and counts instead, which
    belongs to the module of the class of the results: state names it.

    Args:
        kind: The class of the results.
        types: The types of its fields.
        parts: What each of them holds.
        values: The types of the fields of the records, as far as they are known.
    """
    held: dict[str, Part] = {}
    means: dict[str, tuple[str, str]] = {}
    numbers: list[str] = []
    fields: list[tuple[str, Any]] = []
    for name, part in parts.items():
        if not isinstance(part, Mean):
            held[name] = part
            fields.append((name, types[name]))
            continue
        of_sum, of_count = means[name] = unused_name(f"{name}_sum", types), unused_name(f"{name}_count", types)
        held[of_sum], held[of_count] = Sum(part.field), Count(part.field)
        number, _ = without_none(values.get(part.field, object))
        number = number if isinstance(number, type) else object
        numbers.append(f"{name}_{number.__name__}")
        fields += [(of_sum, number | None), (of_count, int)]
    made: type[Any] = derived_class(kind, f"with_sums_{'_'.join(numbers)}", tuple(fields)) if means else kind
    return Partial(made, held, means)


def counted(partial: Partial) -> tuple[Partial, str] | None:
    """Return a partial result that also has the number of its records, and its field with that number.

    None: there cannot be one, because a field has a name that begins with an underscore.
    """
    existing = next((name for name, part in partial.parts.items() if part == Count()), None)
    if existing is not None:
        return partial, existing
    types = field_types(partial.kind) or {}
    if any(name.startswith("_") for name in types):
        return None
    name = unused_name("records", types)
    kind: type = partial.kind
    made = derived_class(kind, f"with_{name}", (*types.items(), (name, int)))
    return partial._replace(kind=made, parts={**partial.parts, name: Count()}), name
