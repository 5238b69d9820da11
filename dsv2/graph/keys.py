"""Checks that the key selectors of an operator return keys that can be equal.

The key type is known if a selector has a return annotation or is a class (``key_by(str)``). Only types that can never
be equal are refused; type checkers check more. (Flink compares the key types when the graph is built.)
"""

from __future__ import annotations

from functools import cache
from typing import NewType, get_origin, get_type_hints

from dsv2.errors import PlanError
from dsv2.graph.plan import KeySelector, Operator


@cache
def _families() -> dict[object, str]:
    """The family of each key type. Values of one family may be equal. (A value annotated as date may be a datetime.)"""
    # Imported here to keep ``import dsv2`` fast.
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
    """Compare the selectors of all inputs and outputs. Raises ``PlanError`` if keys of two can never be equal."""
    first: tuple[str, str] | None = None
    for what, selectors in (("input", operator.input_keys), ("output", operator.output_keys)):
        for number, selector in enumerate(selectors, start=1):
            family = None if selector is None else _family_of(selector)
            if family is None:
                continue
            place = f"the key selector of {what} {number}"
            if first is not None and first[1] != family:
                raise PlanError(
                    f"{operator} at {operator.location}: {first[0]} returns {first[1]}, {place} returns {family}: "
                    f"these are never equal, so no keys would match. Return keys of the same type."
                )
            first = first or (place, family)


def declared_key(operator: Operator) -> object:
    """Return the type of the keys of an operator, as its selectors declare it; None if they do not."""
    selectors = [selector for selector in operator.input_keys if selector is not None]
    found = (selector if isinstance(selector, type) else _returned(selector) for selector in selectors)
    return next((kind for kind in found if kind is not None), None)


def key_type(selector: KeySelector) -> object:
    """Return the type of the keys of a selector; ``object`` if it does not declare it."""
    found = selector if isinstance(selector, type) else _returned(selector)
    return object if found is None else found


def can_be_keys(operator: Operator, kind: object) -> bool:
    """Return whether values of ``kind`` may equal keys of ``operator``, as far as its selectors declare their type."""
    families = {_family_of(selector) for selector in operator.input_keys if selector is not None}
    own = _family(kind)
    return own is None or families <= {own, None}


def _family_of(selector: KeySelector) -> str | None:
    """The family of the keys, or None if their type is unknown or may be equal to any other."""
    return _family(selector if isinstance(selector, type) else _returned(selector))


def _family(kind: object) -> str | None:
    while isinstance(kind, NewType):
        kind = kind.__supertype__
    return _families().get(get_origin(kind) or kind)


def _returned(selector: KeySelector) -> object:
    for candidate in (selector, type(selector).__call__):
        try:
            return get_type_hints(candidate)["return"]
        except Exception:  # no annotations, or annotations that cannot be resolved
            continue
    return None
