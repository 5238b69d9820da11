"""A fault, and the replacements that several of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Mutation(NamedTuple):
    """A fault.

    Attributes:
        fault: What is wrong.
        case: The name of the case that finds it.
        invariant: The invariant that does not hold. Unless it is the model, it is found without the model.
        owner: The class or module that is changed.
        attribute: The name of what is replaced there.
        make: Returns the replacement, given the original.
    """

    fault: str
    case: str
    invariant: str
    owner: Any
    attribute: str
    make: Callable[[Any], Any]

    def apply(self, patch: pytest.MonkeyPatch) -> None:
        """Break the code."""
        original = self.owner.__dict__[self.attribute]
        patch.setattr(self.owner, self.attribute, self.make(original))


def nothing(original: Any) -> Any:
    return lambda *args: None


def wait_for_idle(original: Any) -> Any:
    def deactivate(self: Any, channel: int) -> Any:
        return None

    return deactivate


def without(number: int, empty: Any) -> Callable[[Any], Any]:
    """A snapshot without one of its parts."""

    def make(original: Any) -> Any:
        def snapshot(self: Any) -> tuple[Any, ...]:
            state = original(self)
            return (*state[:number], empty, *state[number + 1 :])

        return snapshot

    return make


def controls_first(original: Any) -> Any:
    def control(self: Any, kind: int, identifier: str, value: Any) -> None:
        original(self, kind, identifier, value)
        self.controls = [(0, *control[1:]) for control in self.controls]

    return control
