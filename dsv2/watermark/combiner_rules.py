"""The interface of rules for combiners whose channels change. See ``channel_rules``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

State: TypeAlias = tuple[Any, ...]
"""A snapshot of a combiner."""


class CombinerRules(ABC):
    """The rules for the combiners of one identifier."""

    @abstractmethod
    def new(self, channels: int, idle: Collection[int], ended: Collection[int]) -> State:
        """The state of a new combiner over ``channels`` channels, some of them idle or ended."""

    @abstractmethod
    def renumbered(self, state: State, numbers: Mapping[int, int]) -> State:
        """Give the channels in ``numbers`` other numbers, and forget the others."""

    @abstractmethod
    def joined(self, states: Sequence[State], has: Sequence[Collection[int]], blocked: Collection[int]) -> State:
        """Merge states of several subtasks.

        Args:
            states: The states.
            has: The channels that each of the subtasks has.
            blocked: The channels that are blocked by an aligned watermark with this identifier.
        """

    def joined_inputs(self, states: Sequence[State], inputs: Collection[int]) -> State:
        """Merge states of combiners over the inputs of an operator in several subtasks."""
        return self.joined(states, [inputs] * len(states), ())

    @abstractmethod
    def replaced(
        self, state: State, old: int, new: int, former: Sequence[int], idle: bool, ended: Collection[int]
    ) -> State:
        """Replace channels.

        Args:
            state: The state over the old channels.
            old: The number of old channels.
            new: The number of new channels.
            former: The old channels that follow the new ones.
            idle: Whether the new channels are idle.
            ended: The old channels that have ended. If all have, so have the new ones.
        """


def renumbered(channels: Iterable[int], numbers: Mapping[int, int]) -> tuple[int, ...]:
    """Return the new numbers of those channels that have one."""
    return tuple(sorted(numbers[channel] for channel in channels if channel in numbers))


def in_all(found: Sequence[Collection[int]], has: Sequence[Collection[int]]) -> tuple[int, ...]:
    """The channels that are in ``found`` of every subtask that has them."""
    everyone = sorted(set[int]().union(*has))
    pairs = [(set(of_one), set(channels)) for of_one, channels in zip(found, has, strict=True)]
    return tuple(c for c in everyone if all(c in of_one for of_one, channels in pairs if c in channels))
