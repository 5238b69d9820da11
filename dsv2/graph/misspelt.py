"""Names in a function class that the runtime would never look at: misspelt callbacks, and reserved names."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import CodeType

from dsv2.errors import PlanError
from dsv2.graph.plan import Operator

__all__ = ("check_names",)

_OF_EVENT_TIME = ("on_event_timer", "on_event_time_watermark")
_RESERVED = "dsv2_"  # fields of users are state, and must not collide with ours
_SIMILAR = 0.85  # of 1: how much of two names is the same


def check_names(operator: Operator, kind: type) -> None:
    """Raise ``PlanError`` for a method of ``kind`` that is named like a callback, and that nothing in it refers to."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dsv2"]
    if not ours:
        return  # the class of a plain callable
    own_classes = [base for base in kind.__mro__ if base not in ours]
    callbacks = {name for base in ours for name in vars(base) if not name.startswith("_")}
    _check_reserved(operator, kind, own_classes, callbacks)
    for name in _methods(own_classes):
        if name in callbacks or _is_referred_to(name, own_classes):
            continue
        meant = _meant(name, callbacks)
        if name in _OF_EVENT_TIME:
            advice = (
                "Only functions with event time have it: subclass OneInputEventTimeStreamProcessFunction or its kin."
            )
        elif meant:
            advice = f"Did you mean {' or '.join(meant)}?"
        elif name.startswith("on_"):
            known = sorted(callback for callback in callbacks if callback.startswith("on_"))
            advice = f"Names that begin with on_ are callbacks, and this class has {', '.join(known)}."
        else:
            continue
        raise PlanError(
            f"{operator} at {operator.location}: {kind.__qualname__}.{name} is never called, because it is no callback "
            f"of this kind of function. {advice} (A method of your own may have any other name, such as _{name}.)"
        )


def _check_reserved(operator: Operator, kind: type, own_classes: Iterable[type], known: set[str]) -> None:
    for name in (name for own in own_classes for name in vars(own)):
        if name.startswith(_RESERVED) and name not in known:
            has = ", ".join(sorted(other for other in known if other.startswith(_RESERVED)))
            raise PlanError(
                f"{operator} at {operator.location}: {kind.__qualname__}.{name} has no meaning. Names that begin with "
                f"{_RESERVED} are reserved for settings of functions; this class has {has}."
            )


def _methods(classes: Iterable[type]) -> Iterator[str]:
    for kind in classes:
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield name


def _meant(name: str, callbacks: Iterable[str]) -> list[str]:
    """The ``callbacks`` whose names are similar to ``name``, also in Java's spelling, or share words with it."""
    by_letters = {callback.replace("_", ""): callback for callback in sorted(callbacks)}
    if found := get_close_matches(name.replace("_", "").lower(), by_letters, 1, _SIMILAR):
        return [by_letters[found[0]]]
    words = set(name.split("_"))
    return [callback for callback in by_letters.values() if "on" in words and words < set(callback.split("_"))]


def _is_referred_to(name: str, classes: Iterable[type]) -> bool:
    """Whether any other method says ``name``: then it is a helper of theirs."""
    methods = [method for kind in classes for method in vars(kind).items()]
    return any(name in _names(value.__code__) for own, value in methods if inspect.isfunction(value) and own != name)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
