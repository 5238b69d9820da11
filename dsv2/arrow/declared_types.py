"""Reads record classes from the type arguments in the class statement of a function or sink."""

from __future__ import annotations

from typing import get_args, get_origin

from dsv2.errors import PlanError


def declared_types(owner: type, base: type, example: str) -> tuple[type, ...]:
    """Return ``Click`` and ``Total`` for ``class Sums(ArrowProcessFunction[Click, Total])``.

    Args:
        owner: The class to read.
        base: The generic class with the type parameters, or a base class of it.
        example: Example type arguments, for the error message.

    Raises:
        PlanError: ``owner`` does not declare its record classes.
    """
    count = len(example.split(","))
    for kind in owner.__mro__:
        for given in getattr(kind, "__orig_bases__", ()):
            origin, types = get_origin(given), get_args(given)
            fits = isinstance(origin, type) and issubclass(origin, base) and len(types) == count
            if fits and all(isinstance(of, type) for of in types):
                return types
    raise PlanError(
        f"{owner.__qualname__} must declare the classes of its records: "
        f"class {owner.__name__}({base.__name__}[{example}]), with your own classes."
    )
