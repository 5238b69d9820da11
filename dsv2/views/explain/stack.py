"""The operators of a chain, one below the other, with links between them, for SVG images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsv2.plan_view.model import EdgeView, OperatorView
from dsv2.views.explain.layout import Point
from dsv2.views.explain.svg_parts import LINE, PAD, TITLE, arrow

_LINK = 14  # the height of a link between two operators
_RAIL = 14  # left of operators, for links that skip others
_LANE = 7  # between such links


@dataclass(frozen=True, slots=True)
class Card:
    """An operator: its lines of text, its upper border below that of the stack, and its height."""

    operator: OperatorView
    lines: Sequence[str]
    top: float
    height: float


@dataclass(frozen=True, slots=True)
class Stack:
    """A chain from top to bottom.

    Attributes:
        cards: The operators, each followed by those that read it, so that most links lead to the next one.
        above: For each but the first, the id of the one that it reads.
        lanes: For operators whose links skip others, the place of these links left of the operators.
    """

    cards: Sequence[Card]
    above: Mapping[int, int]
    lanes: Mapping[int, int]

    @property
    def rail(self) -> float:
        """The width that links need left of the operators."""
        return _RAIL + _LANE * (len(self.lanes) - 1) if self.lanes else 0

    @property
    def height(self) -> float:
        """The height of all."""
        return self.cards[-1].top + self.cards[-1].height

    def middles(self, top: float) -> dict[int, float]:
        """The height of the middle of each operator. ``top``: The upper border of the stack."""
        return {card.operator.id: top + card.top + card.height / 2 for card in self.cards}


def stacked(chain: Sequence[OperatorView], edges: Iterable[EdgeView], lines: Mapping[int, Sequence[str]]) -> Stack:
    """Return the operators of a chain as a stack. ``lines``: The lines of text of each operator."""
    above = {edge.target: edge.source for edge in edges if edge.chained}
    cards: list[Card] = []
    top = 0.0
    waiting = [chain[0]]
    while waiting:
        operator = waiting.pop()
        cards.append(Card(operator, lines[operator.id], top, TITLE + LINE * len(lines[operator.id]) + PAD))
        top += cards[-1].height + _LINK
        waiting += [one for one in reversed(chain) if above.get(one.id) == operator.id]
    ids = [card.operator.id for card in cards]
    skipping = dict.fromkeys(above[one] for before, one in pairwise(ids) if above[one] != before)
    return Stack(cards, above, {operator: lane for lane, operator in enumerate(skipping)})


def links(stack: Stack, place: Point, width: float, attributes: Callable[[int, int], str]) -> Iterator[str]:
    """Draw the links of a stack.

    Args:
        stack: The stack.
        place: The upper left corner of the operators.
        width: Their width.
        attributes: The attributes of a link, by the ids of its ends.
    """
    left, border = place
    tops = {card.operator.id: border + card.top for card in stack.cards}
    for before, operator in pairwise(tops):
        upstream = stack.above[operator]
        given, top = attributes(upstream, operator), tops[operator]
        if upstream == before:
            middle = left + width / 2
            yield f'<path {given} d="M{middle:.1f} {top - _LINK:.1f}V{top - 5:.1f}"/>{arrow(middle, top)}'
        else:
            start, end = tops[upstream] + TITLE - 5, top + TITLE - 5
            lane = left - 9 - _LANE * stack.lanes[upstream]
            path = f"M{left:.1f} {start:.1f}H{lane:.1f}V{end:.1f}H{left - 5:.1f}"
            yield f'<path {given} d="{path}"/>{arrow(left, end, right=True)}'
