"""The operators of a chain, one below the other, with links between them, for SVG images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dsv2.explain.model import EdgeView, OperatorView
from dsv2.explain.svg_parts import arrow

__all__ = ("LINK", "Stack", "links", "stacked")

LINK = 14
"""The height of a link between two operators."""
_RAIL = 14  # left of operators, for links that skip others
_LANE = 7  # between such links


@dataclass(frozen=True, slots=True)
class Stack:
    """A chain from top to bottom.

    Attributes:
        operators: The operators, each followed by those that read it, so that most links lead to the next one.
        above: For each but the first, the id of the one that it reads.
        lanes: For operators whose links skip others, the place of these links left of the operators.
    """

    operators: Sequence[OperatorView]
    above: Mapping[int, int]
    lanes: Mapping[int, int]

    @property
    def rail(self) -> float:
        """The width that links need left of the operators."""
        return _RAIL + _LANE * (len(self.lanes) - 1) if self.lanes else 0


def stacked(chain: Sequence[OperatorView], edges: Iterable[EdgeView]) -> Stack:
    """Return the operators of a chain as a stack."""
    above = {edge.target: edge.source for edge in edges if edge.chained}
    operators: list[OperatorView] = []
    waiting = [chain[0]]
    while waiting:
        operators.append(waiting.pop())
        waiting += [one for one in reversed(chain) if above.get(one.id) == operators[-1].id]
    skipping = dict.fromkeys(above[one.id] for before, one in pairwise(operators) if above[one.id] != before.id)
    return Stack(operators, above, {operator: lane for lane, operator in enumerate(skipping)})


def links(
    stack: Stack,
    tops: Mapping[int, float],
    left: float,
    width: float,
    title: float,
    attributes: Callable[[int, int], str],
) -> Iterator[str]:
    """Draw the links of a stack.

    Args:
        stack: The stack.
        tops: The upper border of each operator.
        left: The left border of the operators.
        width: Their width.
        title: The height of a title, next to which links at the side begin and end.
        attributes: The attributes of a link, by the ids of its ends.
    """
    for before, operator in pairwise(stack.operators):
        upstream = stack.above[operator.id]
        given, top = attributes(upstream, operator.id), tops[operator.id]
        if upstream == before.id:
            middle = left + width / 2
            yield f'<path {given} d="M{middle:.1f} {top - LINK:.1f}V{top - 5:.1f}"/>{arrow(middle, top)}'
        else:
            start, end = tops[upstream] + title, top + title
            lane = left - 9 - _LANE * stack.lanes[upstream]
            path = f"M{left:.1f} {start:.1f}H{lane:.1f}V{end:.1f}H{left - 5:.1f}"
            yield f'<path {given} d="{path}"/>{arrow(left, end, right=True)}'
