"""Code in lock-step with its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from tests.proofs.barrier_model import BarrierModel, Limits
from tests.proofs.behaviour import AGREES, Behaviour
from tests.proofs.invariants import ViolationError
from tests.proofs.model import CROSSING, InputModel, OperatorModel, Reaction, fails
from tests.proofs.rules import Frozen, Rule
from tests.proofs.sent import Arriving, as_sent
from tests.proofs.systems import GateSystem, Run, SubtaskSystem, System
from tests.support import ENDED

Received: TypeAlias = tuple[int, tuple[Any, ...]]
"""A channel, numbered over all inputs, and the elements of a frame."""


class Model(Protocol):
    """A model of the code: its specification."""

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        """Process a frame of ``channel``, numbered over all inputs."""

    def frozen(self) -> Frozen:
        """The state."""

    @property
    def excess(self) -> int:
        """The quantity that grows without a bound, such as the rounds by which one input is ahead."""


class _State(NamedTuple):
    """A state of the code and of its model.

    Attributes:
        snapshot: From which the code is restored.
        key: The state of the code.
        model: The state of the model.
        excess: See ``Model``.
        reached: The state before it on a shortest path, and the frame that leads from there. None: the first one.
    """

    snapshot: Any
    key: Frozen
    model: Frozen
    excess: int
    reached: tuple[int, Received] | None


class Outcome(NamedTuple):
    """The outcome of a step.

    Attributes:
        state: The next state. None: the job fails.
        reaction: The elements seen and sent.
        difference: The reaction of the model, if it differs.
    """

    state: int | None
    reaction: Reaction
    difference: ViolationError | None


class RestartError(ViolationError):
    """A restart makes a difference. ``path``: what was received without a restart."""

    def __init__(self, path: Sequence[Received], detail: str) -> None:
        super().__init__("restart", detail)
        self.path = path


class Component:
    """A system, by the states that it has been in. Each step from one of them is run only once.

    A step is run by code that is restarted before it, and by the model. ``check_restarts`` runs all of them by code
    that is not restarted.
    """

    def __init__(self, system: System, inputs: Sequence[int], new_model: Callable[[Frozen | None], Model]) -> None:
        """``inputs``: the number of channels of each input."""
        self.inputs = inputs
        self._system = system
        self._new_model = new_model
        run, model = system.started(), new_model(None)
        self._states = [_State(run.snapshot(), run.key(), model.frozen(), 0, None)]
        self._numbers = {(run.key(), model.frozen()): 0}
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
        """Return the quantity that grows without a bound, see ``Model.excess``."""
        return self._states[state].excess

    def step(self, state: int, channel: int, elements: tuple[Any, ...]) -> Outcome:
        """Process a frame."""
        known = self._steps.get((state, channel, elements))
        if known is None:
            known = self._steps[state, channel, elements] = self._run(state, channel, elements)
        return known

    def _run(self, state: int, channel: int, elements: tuple[Any, ...]) -> Outcome:
        before = self._states[state]
        run = self._system.restored(before.snapshot)
        reaction, key = run.receive(channel, elements), run.key()
        model = self._new_model(before.model)
        difference = _difference("code", reaction, "model", model.receive(channel, elements))
        if fails(reaction.seen):
            return Outcome(None, reaction, difference)
        known = (key, model.frozen())
        number = self._numbers.get(known)
        if number is None:
            number = self._numbers[known] = len(self._states)
            self._states.append(_State(run.snapshot(), *known, model.excess, (state, (channel, elements))))
        return Outcome(number, reaction, difference)

    def check_restart(self, state: int, channel: int, elements: tuple[Any, ...]) -> None:
        """Run a step by code that reaches ``state`` along a shortest path, and is not restarted.

        Raises:
            RestartError: It does something else than code that was restarted.
        """
        _Walk(self, state).step(channel, elements)

    def check_restarts(self) -> None:
        """Run every step that is known by code that is not restarted before it, nor earlier.

        The code walks from step to step. It starts again if it reaches a state whose steps were all run.

        Raises:
            RestartError: It does something else than code that was restarted.
        """
        ahead: list[list[Received]] = [[] for _ in self._states]
        # Those that go on are taken first: after a failure there is nothing, and after an end there is less.
        for (state, channel, elements), _ in sorted(self._steps.items(), key=lambda step: _goes_on(*step)):
            ahead[state].append((channel, elements))
        for number, steps in enumerate(ahead):
            while steps:
                self._walk(number, ahead)

    def _walk(self, state: int, ahead: Sequence[list[Received]]) -> None:
        walk = _Walk(self, state)
        while walk.state is not None and ahead[walk.state]:
            state, received = walk.state, ahead[walk.state].pop()
            try:
                walk.step(*received)
            except RestartError:
                self.check_restart(state, *received)  # a shorter way, if it differs there as well
                raise

    def path_to(self, state: int) -> list[Received]:
        """The frames on a shortest path to ``state``."""
        path = []
        while (reached := self._states[state].reached) is not None:
            state = reached[0]
            path.append(reached[1])
        return path[::-1]

    def key(self, state: int) -> Frozen:
        """The state of the code."""
        return self._states[state].key

    def started(self) -> Run:
        """Code that begins."""
        return self._system.started()


class _Walk:
    """Code that is never restarted. ``state``: where it is. None: the job has failed."""

    def __init__(self, component: Component, state: int) -> None:
        """Begin, and reach ``state`` along a shortest path."""
        self.state: int | None = state
        self._component = component
        self._run = component.started()
        self._path = component.path_to(state)
        for received in self._path:
            self._run.receive(*received)

    def step(self, channel: int, elements: tuple[Any, ...]) -> None:
        """Process a frame, and compare that with what restarted code has done.

        Raises:
            RestartError: It differs.
        """
        assert self.state is not None
        self._path.append((channel, elements))
        expected = self._component.step(self.state, channel, elements)
        self._require_same(expected.reaction, self._run.receive(channel, elements))
        if expected.state is not None:
            self._require_same(self._component.key(expected.state), self._run.key())
        self.state = expected.state

    def _require_same(self, restarted: Any, other: Any) -> None:
        if restarted != other:
            raise RestartError(self._path, _detail("restarted", restarted, "not restarted", other))


def _goes_on(step: tuple[int, int, tuple[Any, ...]], outcome: Outcome) -> tuple[bool, bool]:
    return outcome.state is not None, ENDED not in step[-1]


class _GateModel:
    excess = 0

    def __init__(self, rules: dict[str, Rule], channels: int, state: Frozen | None, arriving: Arriving) -> None:
        self._input = InputModel(rules, channels, state)
        self._arriving = arriving

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        seen = self._input.receive(channel, [one for element in elements for one in self._arriving(element)])
        return Reaction(tuple(CROSSING if one == CROSSING else (one[0], 0, *one[1:]) for one in seen), ())

    def frozen(self) -> Frozen:
        return self._input.frozen()


class _SubtaskModel:
    def __init__(self, operator: OperatorModel, inputs: Sequence[int], arriving: Arriving) -> None:
        self._operator = operator
        self._arriving = arriving
        self._places = [(number, channel) for number, count in enumerate(inputs) for channel in range(count)]

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        arriving = [one for element in elements for one in self._arriving(element)]
        return self._operator.receive(*self._places[channel], tuple(arriving))

    def frozen(self) -> Frozen:
        return self._operator.frozen()

    @property
    def excess(self) -> int:
        return self._operator.buffered_rounds


def gate_component(
    system: GateSystem, rules: dict[str, Rule], channels: int, arriving: Arriving = as_sent
) -> Component:
    """A gate by itself. ``arriving``: What an element is for the model."""
    return Component(system, (channels,), lambda state: _GateModel(rules, channels, state, arriving))


def subtask_component(
    system: SubtaskSystem,
    rules: dict[str, Rule],
    inputs: Sequence[int],
    *,
    forwards: bool = True,
    behaviour: Behaviour = AGREES,
    arriving: Arriving = as_sent,
) -> Component:
    """A subtask.

    Args:
        system: It.
        rules: The rules of its watermarks, by identifier.
        inputs: The number of channels of each input.
        forwards: Whether the program forwards generalized watermarks.
        behaviour: That of its function.
        arriving: What an element is for the model.
    """

    def new_model(state: Frozen | None) -> _SubtaskModel:
        operator = OperatorModel(rules, inputs, state, forwards=forwards, behaviour=behaviour)
        return _SubtaskModel(operator, inputs, arriving)

    return Component(system, inputs, new_model)


def barrier_component(system: SubtaskSystem, inputs: Sequence[int], limits: Limits) -> Component:
    """A subtask whose channels send barriers."""
    return Component(system, inputs, lambda state: BarrierModel(inputs, limits, state))


def _difference(name: str, one: Any, other_name: str, other: Any) -> ViolationError | None:
    return None if one == other else ViolationError("model", _detail(name, one, other_name, other))


def _detail(name: str, one: Any, other_name: str, other: Any) -> str:
    return f"{name}: {_readable(one)}\n  {other_name}: {_readable(other)}"


def _readable(value: Any) -> str:
    return f"sees {value.seen}, sends {value.sent}" if isinstance(value, Reaction) else repr(value)
