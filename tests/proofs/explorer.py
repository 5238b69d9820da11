"""Explores every state that a case can reach, and checks each step between two of them.

As TLC does: from each distinct state, every next frame of every channel. Two states are one if the snapshots of the
code, the states of the models and the facts are equal. So a path of any length is covered if its states are. The search
is breadth-first, so the path to the first violation is a shortest one.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dsv2.watermark.event_time import EVENT_TIME
from tests.proofs.components import Component, Outcome, RestartError
from tests.proofs.events import TICK, Frame, Letter, Step, frame_of, frames_of, shown, with_ticks
from tests.proofs.invariants import ALL_JUDGED, History, Judged, ViolationError
from tests.proofs.model import END_OF_TIME, Seen, fails
from tests.proofs.rules import Frozen, Rule, Status
from tests.proofs.sent import Arriving, as_sent


@dataclass(frozen=True)
class Case:
    """A case to explore.

    Attributes:
        name: Its name.
        first: The components that receive what the channels send, which are numbered over all of them.
        second: The component behind them, if there is one. It has a channel for each of them.
        rules: The rules of its watermarks, by identifier.
        letters: The events of a channel.
        longest: The number of events in a frame, at most.
        held: The number of elements that a channel may have behind an aligned watermark, at most.
        judged: The invariants of facts that apply.
        arriving: What arrives at the last function because of an element of a channel.
        timed: Whether the clock moves.
        new_facts: Creates or restores the facts of some channels, whose number it takes. None: ``History``.
    """

    name: str
    first: Sequence[Component]
    second: Component | None
    rules: Mapping[str, Rule]
    letters: Sequence[Letter]
    longest: int = 1
    held: int = 3
    judged: Judged = ALL_JUDGED
    arriving: Arriving = as_sent
    timed: bool = False
    new_facts: Callable[[int, Frozen | None], Facts] | None = None


class Planned(NamedTuple):
    """A case that has yet to be made."""

    name: str
    make: Callable[[str], Case]

    def case(self) -> Case:
        """Make it."""
        return self.make(self.name)


class Facts(Protocol):
    """Judges what the function has seen of several channels."""

    def frozen(self) -> Frozen:
        """The state."""

    def status(self, channel: int) -> Status:
        """Of ``channel``, which may have sent an end that is still held back."""

    def unseen(self, channel: int) -> int:
        """Number of elements of ``channel`` that are held back."""

    def move_clock(self) -> None:
        """The clock moves."""

    def sent(self, channel: int, owner: int, frame: Frame) -> list[Any]:
        """``channel``, which has the number ``owner`` in the job, sends a frame. Returns its elements, with records."""

    def check(self, seen: Sequence[Seen], owners: Sequence[int]) -> bool:
        """Check what the function has seen. Returns whether the job goes on."""


class Explored(NamedTuple):
    """The size of what was checked.

    Attributes:
        states: The number of distinct states.
        transitions: The number of steps between them.
        runs: The number of different steps of components. Each was run by restarted code, by code that was never
            restarted, and by the model.
        depth: The number of frames that the farthest state needs.
    """

    states: int
    transitions: int
    runs: int
    depth: int


class CounterexampleError(AssertionError):
    """A path on which an invariant does not hold."""

    def __init__(self, case: str, path: Sequence[Step], error: ViolationError) -> None:
        super().__init__(f"{case}\n{shown(path)}\n{error}")
        self.invariant = error.invariant
        self.path = path


_YOUNG_OBJECTS = 50_000


class _State(NamedTuple):
    components: tuple[int, ...]
    facts: tuple[Frozen, ...]


class _ComponentStep(NamedTuple):
    component: Component
    taken: tuple[int, int, tuple[Any, ...]]
    outcome: Outcome


def explore(case: Case, *, model: bool = True) -> Explored:
    """Check every state that ``case`` can reach.

    Args:
        case: The case.
        model: Compare with the model. If not, the facts alone are judged, and that restarts change nothing.

    Raises:
        CounterexampleError: An invariant does not hold.
    """
    search = _Search(case, model)
    with _rare_collections():
        while search.waiting:
            search.expand(*search.waiting.popleft())
        search.check_restarts()
    return Explored(len(search.found), search.transitions, search.runs, search.depth)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Collect garbage less often than usual: there are more and more states, and all of them stay."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Search:
    def __init__(self, case: Case, model: bool) -> None:
        self.case = case
        self._model = model
        self.transitions = self.depth = 0
        frames = frames_of(case.letters, case.longest)
        self._frames = with_ticks(frames) if case.timed else frames
        self._places = [(number, local) for number, one in enumerate(case.first) for local in range(one.channels)]
        # Facts belong to an input. Behind a second operator, and for the event time of an operator, all are one input.
        as_one = case.second is not None or not case.rules or (set(case.rules) == {EVENT_TIME})
        self._groups = (len(self._places),) if as_one else tuple(case.first[0].inputs)
        self._components = [*case.first, *([] if case.second is None else [case.second])]
        first = _State(
            (0,) * len(self._components), tuple(one.frozen() for one in self._facts((None,) * len(self._groups)))
        )
        self.found = {first}
        self.waiting: deque[tuple[_State, tuple[Step, ...]]] = deque([(first, ())])

    def _facts(self, states: Sequence[Frozen | None]) -> list[Facts]:
        if self.case.new_facts is not None:
            return [self.case.new_facts(count, state) for count, state in zip(self._groups, states, strict=True)]
        judged = self.case.judged if len(self._groups) == 1 else self.case.judged._replace(time=False)
        return [
            History(self.case.rules, count, frozen, judged, self.case.arriving)
            for count, frozen in zip(self._groups, states, strict=True)
        ]

    def _group(self, channel: int) -> tuple[int, int]:
        """The facts to which ``channel`` belongs, and its number there."""
        group = 0
        while channel >= self._groups[group]:
            channel -= self._groups[group]
            group += 1
        return group, channel

    def check_restarts(self) -> None:
        """Run every step again by code that is never restarted."""
        first = 0
        for component in self._components:
            try:
                component.check_restarts()
            except RestartError as error:
                name = self.case.name if len(self._components) == 1 else f"{self.case.name}, one of the operators"
                offset = 0 if component is self.case.second else first
                path = [Step(offset + channel, frame_of(elements)) for channel, elements in error.path]
                raise CounterexampleError(name, path, error) from error
            first += component.channels

    @property
    def runs(self) -> int:
        """The number of steps of components that were run."""
        return sum(one.steps for one in self._components)

    def expand(self, state: _State, path: tuple[Step, ...]) -> None:
        """Take every step from ``state``."""
        for channel in range(len(self._places)):
            group, member = self._group(channel)
            facts = self._facts(state.facts)[group]
            if facts.status(member) == "ended":
                continue
            for frame in self._frames:
                if facts.unseen(member) and facts.unseen(member) + len(frame) > self.case.held:
                    continue
                self.transitions += 1
                try:
                    following = self._step(state, channel, frame)
                except ViolationError as error:
                    raise CounterexampleError(self.case.name, (*path, Step(channel, frame)), error) from error
                if following is not None and following not in self.found:
                    self.found.add(following)
                    self.waiting.append((following, (*path, Step(channel, frame))))
                    self.depth = max(self.depth, len(path) + 1)

    def _step(self, state: _State, channel: int, frame: Frame) -> _State | None:
        """The next state. None: the job fails, or the state is beyond the bounds."""
        all_facts, (group, member) = self._facts(state.facts), self._group(channel)
        ticks = frame[:1] == (TICK,)
        if ticks:
            for facts in all_facts:
                facts.move_clock()
        elements = (*frame[:ticks], *all_facts[group].sent(member, channel, frame[ticks:]))
        components = [*state.components]
        steps = self._run(components, channel, elements)
        try:
            goes_on = self._check(all_facts, self._seen(steps))
            for step in steps:
                if self._model and step.outcome.difference is not None:
                    raise step.outcome.difference
        except ViolationError:
            for step in steps:
                step.component.check_restart(*step.taken)  # a restart may be the reason
            raise
        if not goes_on or any(step.outcome.state is None for step in steps) or self._is_beyond_bounds(components):
            return None
        return _State(tuple(components), tuple(one.frozen() for one in all_facts))

    def _seen(self, steps: Sequence[_ComponentStep]) -> Sequence[Seen]:
        """Return what the last function sees, or that an operator before it fails."""
        seen = steps[-1].outcome.reaction.seen
        if self.case.second is None or len(steps) == 2:
            return seen
        return [one for one in seen if fails([one])]

    def _is_beyond_bounds(self, components: Sequence[int]) -> bool:
        """Return whether more is buffered between the inputs of an operator, or late, than the case permits."""
        ahead = (one.excess(at) for one, at in zip(self._components, components, strict=True))
        return max(ahead) > self.case.held

    def _run(self, components: list[int], channel: int, elements: tuple[Any, ...]) -> list[_ComponentStep]:
        """Pass a frame through the components, whose states change.

        What the first operator sends is passed on at once. Its subtasks have no effect on each other, so whatever the
        order in which the second operator reads, each of them can be thought to run just before its output is read.
        """
        number, local = self._places[channel]
        steps = [self._run_one(components, number, local, elements)]
        sent = (*(element for element in elements[:1] if element == TICK), *steps[0].outcome.reaction.sent)
        if self.case.second is not None and sent:
            steps.append(self._run_one(components, -1, number, sent))
        return steps

    def _run_one(self, components: list[int], number: int, channel: int, elements: tuple[Any, ...]) -> _ComponentStep:
        component, taken = self._components[number], (components[number], channel, elements)
        outcome = component.step(*taken)
        components[number] = outcome.state or 0
        return _ComponentStep(component, taken, outcome)

    def _check(self, all_facts: Sequence[Facts], seen: Sequence[Seen]) -> bool:
        goes_on, first = True, 0
        for group, facts in enumerate(all_facts):
            owners = range(first, first + self._groups[group])
            first = owners.stop
            goes_on = facts.check([*self._of_group(seen, group)], owners) and goes_on
        return goes_on

    def _of_group(self, seen: Iterable[Seen], group: int) -> Iterator[Seen]:
        """Yield what is seen of a group of channels. Event time and end of an operator belong to all of them."""
        as_one = len(self._groups) == 1
        for what, *rest in seen:
            match what:
                case "crossing" | "disorder" | "exceeded" | "count":
                    yield (what, *rest)
                case "time":
                    if as_one and self.case.judged.time and rest[0] != END_OF_TIME:
                        yield ("watermark", EVENT_TIME, *rest)
                case "close":
                    if as_one:
                        yield ("end",)
                case "end" if as_one and self.case.judged.closes:
                    pass
                case _:
                    if as_one or rest[0] == group:
                        yield (what, *rest[1:])
