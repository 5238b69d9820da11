"""The legal output of an input, given the elements of its channels.

The elements of a channel keep their order. Between channels any order is legal. A watermark is delivered as the value
of the combination over all channels, if it changes that value. An aligned one holds its channel back until its round is
complete. A channel that has ended is not waited for. Its last value counts in one combination. Then it is neutral,
which can let the combination rise but not fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from dsv2.watermark import WatermarkDeclaration

_FOLDS: dict[str, Callable[[Iterable[int]], int]] = {"MIN": min, "MAX": max, "AND": all, "OR": any}


class Record(NamedTuple):
    """A record. Records are equal if their values are."""

    value: Any


class Signal(NamedTuple):
    """A watermark."""

    identifier: str
    value: int


Element: TypeAlias = Record | Signal


class Rule(NamedTuple):
    """The combination of one identifier."""

    function: str
    wait: bool = False
    aligned: bool = False

    @staticmethod
    def of(declaration: WatermarkDeclaration) -> Rule:
        """The rule of ``declaration``."""
        policy = declaration.combination_policy
        return Rule(policy.combination_function.name, policy.combine_wait_for_all_channels, policy.aligned)


class WatermarkHistory(NamedTuple):
    """Watermarks of one identifier so far. ``values``: the last one of each channel, or of this round if aligned.

    ``new``: channels whose value has not counted yet. ``uncounted``: such values of channels that have ended.
    """

    values: tuple[tuple[int, int], ...] = ()
    gone: frozenset[int] = frozenset()
    new: frozenset[int] = frozenset()
    uncounted: tuple[int, ...] = ()
    last: int | None = None

    def after(self, rule: Rule, channels: int, channel: int, value: int | None) -> tuple[WatermarkHistory, list[int]]:
        """The state after ``channel`` sent ``value``, or ended (None), and the watermarks delivered then."""
        fold, values = _FOLDS[rule.function], dict(self.values)
        gone, new, uncounted = self.gone, self.new, self.uncounted
        if value is not None:
            values[channel] = value
            new |= {channel}
        else:
            gone |= {channel}
            if not rule.aligned:
                own = values.pop(channel, None)
                if own is not None and channel in new:
                    uncounted = tuple(sorted((*uncounted, own)))
                new -= {channel}
        if rule.aligned:
            if not values or any(c not in values and c not in gone for c in range(channels)):
                return WatermarkHistory(tuple(sorted(values.items())), gone), []
            return WatermarkHistory((), gone), [fold(values.values())]
        if rule.wait and len(values) < channels - len(gone):
            return WatermarkHistory(tuple(sorted(values.items())), gone, new, uncounted, self.last), []
        shown = [self.last]
        if new or uncounted:
            shown.append(fold([*values.values(), *uncounted]))
        if values and (shown[-1] is None or fold(values.values()) > shown[-1]):
            shown.append(fold(values.values()))
        delivered = [now for before, now in pairwise(shown) if now is not None and now != before]
        return WatermarkHistory(tuple(sorted(values.items())), gone, last=shown[-1]), delivered


class _State(NamedTuple):
    taken: tuple[int, ...]  # consumed elements of each channel
    ended: frozenset[int]
    heard: tuple[WatermarkHistory, ...]  # by identifier, in the order of the rules
    shown: int  # matched elements of the received sequence


def is_legal(rules: Mapping[str, Rule], channels: Sequence[Sequence[Element]], received: Sequence[Element]) -> bool:
    """Return whether ``received`` is the complete output that a function may receive for the complete ``channels``."""
    search = _Search(rules, channels, received)
    waiting = [_State((0,) * len(channels), frozenset(), (WatermarkHistory(),) * len(rules), 0)]
    seen = set(waiting)
    while waiting:
        state = waiting.pop()
        if len(state.ended) == len(channels):
            if state.shown == len(received):
                return True
            continue
        for following in search.steps(state):
            if following not in seen:
                seen.add(following)
                waiting.append(following)
    return False


class _Search:
    def __init__(
        self, rules: Mapping[str, Rule], channels: Sequence[Sequence[Element]], received: Sequence[Element]
    ) -> None:
        self._identifiers = list(rules)
        self._rules = list(rules.values())
        self._channels = channels
        self._received = received

    def steps(self, state: _State) -> Iterator[_State]:
        """Yield the states after the next element of any channel that agree with the received sequence."""
        held = {
            channel
            for rule, heard in zip(self._rules, state.heard, strict=True)
            if rule.aligned
            for channel, _ in heard.values
        }
        for channel in range(len(self._channels)):
            if channel in held or channel in state.ended:
                continue
            step = self._step(state, channel)
            if step is not None:
                yield step

    def _step(self, state: _State, channel: int) -> _State | None:
        taken = state.taken[channel]
        if taken == len(self._channels[channel]):
            return self._end(state, channel)
        element = self._channels[channel][taken]
        state = state._replace(taken=(*state.taken[:channel], taken + 1, *state.taken[channel + 1 :]))
        if isinstance(element, Record):
            return self._show(state, [element])
        index = self._identifiers.index(element.identifier)
        heard, delivered = state.heard[index].after(self._rules[index], len(self._channels), channel, element.value)
        state = state._replace(heard=(*state.heard[:index], heard, *state.heard[index + 1 :]))
        return self._show(state, [Signal(element.identifier, value) for value in delivered])

    def _end(self, state: _State, channel: int) -> _State | None:
        heard, shown = [], []
        for identifier, rule, before in zip(self._identifiers, self._rules, state.heard, strict=True):
            after, delivered = before.after(rule, len(self._channels), channel, None)
            heard.append(after)
            shown += [Signal(identifier, value) for value in delivered]
        # If one end releases several identifiers, their order is not defined.
        shown.sort(key=self._place(state))
        return self._show(state._replace(ended=state.ended | {channel}, heard=tuple(heard)), shown)

    def _place(self, state: _State) -> Callable[[Element], int]:
        following = list(self._received[state.shown : state.shown + 2 * len(self._rules)])
        return lambda element: following.index(element) if element in following else len(following)

    def _show(self, state: _State, elements: Sequence[Element]) -> _State | None:
        shown = state.shown + len(elements)
        if list(self._received[state.shown : shown]) != list(elements):
            return None
        return state._replace(shown=shown)
