"""The result of an aggregation: its class, and what each field holds. Also its use record by record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter, itemgetter
from typing import Any, Generic

from dsv2.aggregates.field_types import field_types, fits, held_type, shown
from dsv2.aggregates.partial_results import partial_of
from dsv2.aggregates.result_field import Aggregate, Count, Key, Mean, Part, WindowEnd, WindowStart
from dsv2.base.optional_types import without_none
from dsv2.base.type_variables import OUT
from dsv2.errors import PlanError, SchemaError


class DeclaredResult(Generic[OUT]):
    """The declaration of an aggregation.

    Partial results are described by ``partial_of``. In them an aggregate without values is None, and a count is 0.

    Args:
        kind: The class of the results, a NamedTuple class or dataclass.
        parts: What each of its fields holds.
        windowed: Whether the results are those of windows.
        values: The types of the fields of the records, as far as they are known.
        key: The type of the keys, or ``object``.

    Raises:
        PlanError: ``kind`` has no fields, or they are not those of ``parts``, or one has not the type of what it holds,
            or there is a mean and a field whose name begins with an underscore.
    """

    def __init__(
        self,
        kind: type[OUT],
        parts: Mapping[str, Part],
        *,
        windowed: bool,
        values: Mapping[str, Any] | None = None,
        key: Any = object,
    ) -> None:
        self.kind = kind
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
                    f"{name}={part!r} is not an aggregate. Use Sum, Count, Mean, Min, Max, First, Last or Key."
                )
            if isinstance(part, WindowStart | WindowEnd) and not windowed:
                raise PlanError(f"{name} is a bound of a window, but there is none. Call window(...) first.")
            held = held_type(part, values or {}, key)
            if not fits(held, types[name]):
                raise PlanError(
                    f"{name} of {kind.__qualname__} is {shown(types[name])}, but {part} is {shown(held)}. Declare the "
                    f"field as {shown(held)}."
                )
        hidden = next((name for name in types if name.startswith("_")), None)
        if hidden is not None and any(isinstance(part, Mean) for part in parts.values()):
            raise PlanError(
                f"{kind.__qualname__} has a mean, so the names of its fields must not begin with an "
                f"underscore. Rename {hidden}."
            )
        self.parts: dict[str, Part] = {name: parts[name] for name in types}
        self.partial = partial_of(kind, types, self.parts, values or {})
        self._required = [name for name, kind in types.items() if not without_none(kind)[1]]

    @property
    def declared(self) -> dict[str, str]:
        """The content of each field, as the program declares it."""
        return {name: str(part) for name, part in self.parts.items()}

    def empty(self, key: Any = None) -> Any:
        """Return the partial result of no records. ``key``: None to leave it out."""
        values: dict[str, Any] = {}
        for name, part in self.partial.parts.items():
            of_key = part.of(key) if isinstance(part, Key) and key is not None else None
            values[name] = 0 if isinstance(part, Count) else of_key
        return self.partial.kind(**values)

    def adder(self) -> Callable[[Any, Any], Any]:
        """Return a function ``(record, partial result) -> partial result``."""
        names, parts = list(self.partial.parts), list(self.partial.parts.values())
        kind = self.partial.kind
        read = attrgetter(*names) if len(names) > 1 else lambda record: (getattr(record, names[0]),)
        getters: list[Callable[[Any], Any] | None] = []

        def add(record: Any, before: Any) -> Any:
            if not getters:
                getters.extend(_getter(part, record) for part in parts)
            values = []
            for part, get, old in zip(parts, getters, read(before), strict=True):
                value = None if get is None else get(record)
                if value is None:
                    values.append(old)
                else:
                    values.append(part.first(value) if old is None else part.fold(old, value))  # type: ignore[attr-defined]
            return kind(**dict(zip(names, values, strict=True)))

        return add

    def merge(self, first: Any, second: Any) -> Any:
        """Return the partial result of two."""
        values: dict[str, Any] = dict.fromkeys(self.partial.parts)
        for name, part in self.partial.aggregates.items():
            one, other = getattr(first, name), getattr(second, name)
            values[name] = other if one is None else one if other is None else part.merge(one, other)
        return self.partial.kind(**values)

    def finished(self, partial: Any, key: Any, start: int = -1, end: int = -1) -> OUT:
        """Return the result of a key.

        Raises:
            SchemaError: An aggregate has no values, and its field is not optional.
        """
        values: dict[str, Any] = {}
        for name, part in self.parts.items():
            match part:
                case Aggregate():
                    values[name] = getattr(partial, name)
                case Mean():
                    of_sum, of_count = self.partial.means[name]
                    values[name] = part.of(getattr(partial, of_sum), getattr(partial, of_count))
                case Key():
                    values[name] = part.of(key)
                case WindowStart():
                    values[name] = start
                case WindowEnd():
                    values[name] = end
        for name in self._required:
            if values[name] is None:
                raise SchemaError(f"Field {name!r} of {self.kind.__qualname__} is None in a record.")
        return self.kind(**values)


def _getter(part: Part, record: Any) -> Callable[[Any], Any] | None:
    """Returns what a part aggregates; None if it is not an aggregate."""
    if not isinstance(part, Aggregate):
        return None
    if not part.field:
        return _one
    return itemgetter(part.field) if isinstance(record, dict) else attrgetter(part.field)


def _one(record: Any) -> int:
    return 1
