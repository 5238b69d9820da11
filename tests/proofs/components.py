"""Code in lock-step with its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tests.proofs.barrier_model import BarrierModel, Limits
from tests.proofs.invariants import ViolationError
from tests.proofs.model import CROSSING, InputModel, OperatorModel, Reaction, fails
from tests.proofs.rules import Frozen, Rule
from tests.proofs.systems import GateSystem, SubtaskSystem, System

__all__ = ("Component", "Outcome", "barrier_component", "gate_component", "subtask_component")


class Model(Protocol):
    """What the code should do."""

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        """Process a frame of ``channel``, numbered over all inputs."""

    def frozen(self) -> Frozen:
        """The state."""

    @property
    def excess(self) -> int:
        """What grows without a bound, such as the number of rounds that one input is ahead of the others."""


class _State(NamedTuple):
    snapshot: Any
    model: Frozen
    history: tuple[tuple[int, tuple[Any, ...]], ...]
    """The frames on the way here."""


class Outcome(NamedTuple):
    """What a step leads to.

    Attributes:
        state: The next state. None: the job fails.
        reaction: What is seen and sent.
        difference: What the model does instead, if it differs.
    """

    state: int | None
    reaction: Reaction
    difference: ViolationError | None


class Component:
    """A system, by the states that it has been in. Each step from one of them is run only once.

    A step is run by code that is restarted before it, by code that has never been restarted, and by the model.
    """

    def __init__(self, system: System, inputs: Sequence[int], new_model: Callable[[Frozen | None], Model]) -> None:
        """``inputs``: the number of channels of each input."""
        self.inputs = inputs
        self._system = system
        self._new_model = new_model
        run, model = system.started(), new_model(None).frozen()
        self._states = [_State(run.snapshot(), model, ())]
        self._numbers = {(run.key(), model): 0}
        self._steps: dict[tuple[int, int, tuple[Any, ...]], Outcome] = {}

    @property
    def channels(self) -> int:
        """The number of channels of all inputs."""
        return sum(self.inputs)

    @property
    def states(self) -> int:
        """The number of states that were found so far. The first one is 0."""
        return len(self._states)

    @property
    def steps(self) -> int:
        """The number of steps that were run so far."""
        return len(self._steps)

    def excess(self, state: int) -> int:
        """What grows without a bound, such as the number of rounds that one input is ahead of the others."""
        return self._new_model(self._states[state].model).excess

    def step(self, state: int, channel: int, elements: tuple[Any, ...]) -> Outcome:
        """Process a frame.

        Raises:
            ViolationError: A restart makes a difference.
        """
        known = self._steps.get((state, channel, elements))
        if known is None:
            known = self._steps[state, channel, elements] = self._run(self._states[state], channel, elements)
        return known

    def _run(self, state: _State, channel: int, elements: tuple[Any, ...]) -> Outcome:
        run = self._system.restored(state.snapshot)
        reaction, key = run.receive(channel, elements), run.key()
        steady = self._system.started()
        for earlier in state.history:
            steady.receive(*earlier)
        again = steady.receive(channel, elements)
        difference = _difference("restart", "restarted", reaction, "not restarted", again)
        difference = difference or _difference("restart", "restarted", key, "not restarted", steady.key())
        if difference is not None:
            raise difference
        model = self._new_model(state.model)
        difference = _difference("model", "code", reaction, "model", model.receive(channel, elements))
        if fails(reaction.seen):
            return Outcome(None, reaction, difference)
        known = (key, model.frozen())
        if known not in self._numbers:
            self._numbers[known] = len(self._states)
            history = (*state.history, (channel, elements))
            self._states.append(_State(run.snapshot(), model.frozen(), history))
        return Outcome(self._numbers[known], reaction, difference)


class _GateModel:
    excess = 0

    def __init__(self, rules: dict[str, Rule], channels: int, state: Frozen | None) -> None:
        self._input = InputModel(rules, channels, state)

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        seen = self._input.receive(channel, elements)
        return Reaction(tuple(CROSSING if one == CROSSING else (one[0], 0, *one[1:]) for one in seen), ())

    def frozen(self) -> Frozen:
        return self._input.frozen()


class _SubtaskModel:
    def __init__(self, rules: dict[str, Rule], inputs: Sequence[int], forwards: bool, state: Frozen | None) -> None:
        self._operator = OperatorModel(rules, inputs, state, forwards=forwards)
        self._places = [(number, channel) for number, count in enumerate(inputs) for channel in range(count)]

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        return self._operator.receive(*self._places[channel], elements)

    def frozen(self) -> Frozen:
        return self._operator.frozen()

    @property
    def excess(self) -> int:
        return self._operator.buffered_rounds


def gate_component(system: GateSystem, rules: dict[str, Rule], channels: int) -> Component:
    """A gate by itself."""
    return Component(system, (channels,), lambda state: _GateModel(rules, channels, state))


def subtask_component(
    system: SubtaskSystem, rules: dict[str, Rule], inputs: Sequence[int], *, forwards: bool = True
) -> Component:
    """A subtask. ``forwards``: Whether the program forwards generalized watermarks."""
    return Component(system, inputs, lambda state: _SubtaskModel(rules, inputs, forwards, state))


def barrier_component(system: SubtaskSystem, inputs: Sequence[int], limits: Limits) -> Component:
    """A subtask whose channels send barriers."""
    return Component(system, inputs, lambda state: BarrierModel(inputs, limits, state))


def _difference(invariant: str, name: str, one: Any, other_name: str, other: Any) -> ViolationError | None:
    if one == other:
        return None
    return ViolationError(invariant, f"{name}: {_readable(one)}\n  {other_name}: {_readable(other)}")


def _readable(value: Any) -> str:
    return f"sees {value.seen}, sends {value.sent}" if isinstance(value, Reaction) else repr(value)
