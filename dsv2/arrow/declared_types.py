"""Of what classes records are, as the class statement of a function or a sink says it."""

from __future__ import annotations

from typing import get_args, get_origin

from dsv2.errors import PlanError

__all__ = ("declared_types",)


def declared_types(owner: type, base: type, example: str) -> tuple[type, ...]:
    """``Click`` and ``Total`` of ``class Sums(ArrowProcessFunction[Click, Total])``.

    ``base``: the class that takes them, or one above it; ``example``: classes as they may stand there. Raises
    ``PlanError`` if ``owner`` does not say so.
    """
    count = len(example.split(","))
    for kind in owner.__mro__:
        for given in getattr(kind, "__orig_bases__", ()):
            origin, types = get_origin(given), get_args(given)
            fits = isinstance(origin, type) and issubclass(origin, base) and len(types) == count
            if fits and all(isinstance(of, type) for of in types):
                return types
    raise PlanError(
        f"{owner.__qualname__} has to say of what classes its records are: "
        f"class {owner.__name__}({base.__name__}[{example}]), with classes of yours."
    )
