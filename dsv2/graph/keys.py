"""Whether the keys of an operator can ever be equal, as far as its key selectors say what they give.

They say it by a return annotation, or by being a class (``key_by(str)``). Type checkers see more; here only that is
refused of which it is certain that it never works. (Flink compares the types of keys when the graph is built.)
"""

from __future__ import annotations

from functools import cache
from typing import NewType, get_origin, get_type_hints

from dsv2.errors import PlanError
from dsv2.graph.plan import KeySelector, Operator

__all__ = ("check_keys",)


@cache
def _families() -> dict[object, str]:
    """Types whose values may be equal have one family. (Where a date is announced, a datetime may come.)"""
    # Imported where they are needed, for ``import dsv2`` is to be quick.
    from datetime import date, datetime, time, timedelta
    from decimal import Decimal
    from fractions import Fraction
    from uuid import UUID

    return {
        **dict.fromkeys((bool, int, float, Decimal, Fraction), "numbers"),
        **dict.fromkeys((date, datetime), "dates"),
        **{kind: kind.__name__ for kind in (str, bytes, tuple, time, timedelta, UUID)},
    }


def check_keys(operator: Operator) -> None:
    """Compare the selectors of all inputs and outputs. Raises ``PlanError`` for two whose keys are never equal."""
    said: tuple[str, str] | None = None
    for what, selectors in (("input", operator.input_keys), ("output", operator.output_keys)):
        for number, selector in enumerate(selectors, start=1):
            family = None if selector is None else _family_of(selector)
            if family is None:
                continue
            place = f"the key selector of {what} {number}"
            if said is not None and said[1] != family:
                raise PlanError(
                    f"{operator} at {operator.location}: {said[0]} gives {said[1]}, {place} gives {family}: these are "
                    f"never equal, so no keys would meet. Select keys of one type."
                )
            said = said or (place, family)


def _family_of(selector: KeySelector) -> str | None:
    """None: it does not say, or gives what may be equal to anything."""
    kind: object = selector if isinstance(selector, type) else _returned(selector)
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return _families().get(get_origin(kind) or kind)


def _returned(selector: KeySelector) -> object:
    for candidate in (selector, type(selector).__call__):
        try:
            return get_type_hints(candidate)["return"]
        except Exception:  # it has no annotations, or such as cannot be resolved
            continue
    return None
