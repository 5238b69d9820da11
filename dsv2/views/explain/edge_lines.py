"""The lines of edges in SVG images: where they leave and reach columns of operators, and their paths."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from dsv2.views.explain.layout import Point
from dsv2.views.explain.svg_parts import arrow

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BoxColumn:
    """Operators one below the other. Lines of the last one leave at the bottom, those of the others at the side.

    Attributes:
        left: The left border.
        width: The width.
        top: The height at which lines arrive.
        bottom: The height at which lines of the last operator leave.
        side: The place across at which lines of the other operators leave.
        floor: The height to which these lead down beside the column.
        turns: How far right of the column they turn down, in turn.
        middles: The height of the middle of each operator, from top to bottom.
    """

    left: float
    width: float
    top: float
    bottom: float
    side: float
    floor: float
    turns: Sequence[float]
    middles: Mapping[int, float]

    @property
    def centre(self) -> float:
        """The centre across."""
        return self.across(0, 1)

    def across(self, place: int, number: int) -> float:
        """One of ``number`` places that are spread over the width."""
        return self.left + self.width * (place + 1) / (number + 1)


@dataclass(frozen=True, slots=True)
class RoutedLine:
    """A line with its place in the image.

    Attributes:
        side: Where it leaves at the side. None: it leaves at the bottom.
        points: Where it leaves, or has turned down; where it enters and leaves each row that it passes; its tip.
        place: Its place among those that arrive in the same column, from the left.
    """

    side: Point | None
    points: Sequence[Point]
    place: int

    @property
    def tip(self) -> Point:
        """The tip of its arrow."""
        return self.points[-1]

    def drawn(self, attributes: str) -> str:
        """The line and the head of its arrow."""
        (x, y), (tip_x, tip_y) = self.points[0], self.tip
        path = f"M{x:.1f} {y:.1f}"
        if self.side is not None:
            left, top = self.side
            path = f"M{left:.1f} {top:.1f}H{x - 5:.1f}Q{x:.1f} {top:.1f} {x:.1f} {top + 5:.1f}V{y:.1f}"
        for leg, (start, end) in enumerate(pairwise((*self.points[:-1], (tip_x, tip_y - 5)))):
            if leg % 2:
                path += f"L{end[0]:.1f} {end[1]:.1f}"  # through a row
                continue
            bend = (end[1] - start[1]) / 2
            path += f"C{start[0]:.1f} {start[1] + bend:.1f} {end[0]:.1f} {end[1] - bend:.1f} {end[0]:.1f} {end[1]:.1f}"
        return f'<path {attributes} d="{path}"/>{arrow(tip_x, tip_y)}'


def routed(
    columns: Mapping[K, BoxColumn], lines: Sequence[tuple[K, int, K]], bends: Sequence[Sequence[tuple[Point, Point]]]
) -> list[RoutedLine]:
    """Return lines with their places, spread over the width of their columns in the order of where they lead.

    Args:
        columns: The columns by key.
        lines: For each line, the column and the operator that it leaves, and the column that it reaches.
        bends: For each line, the points through which it passes rows.
    """

    def towards(number: int) -> float:
        return bends[number][0][0][0] if bends[number] else columns[lines[number][2]].centre

    def origin(number: int) -> float:
        return bends[number][-1][1][0] if bends[number] else columns[lines[number][0]].centre

    starts: dict[int, tuple[Point | None, Point]] = {}
    ends: dict[int, tuple[Point, int]] = {}
    for key, column in columns.items():
        last = [*column.middles][-1]
        leaving = sorted((number for number, line in enumerate(lines) if line[0] == key), key=towards)
        below = [number for number in leaving if lines[number][1] == last]
        for place, number in enumerate(below):
            starts[number] = None, (column.across(place, len(below)), column.bottom)
        for place, number in enumerate(number for number in leaving if number not in below):
            turn = column.left + column.width + column.turns[place % len(column.turns)]
            starts[number] = (column.side, column.middles[lines[number][1]]), (turn, column.floor)
        arriving = sorted((number for number, line in enumerate(lines) if line[2] == key), key=origin)
        for place, number in enumerate(arriving):
            ends[number] = (column.across(place, len(arriving)), column.top), place
    routes = []
    for number, passed in enumerate(bends):
        (side, start), (end, place) = starts[number], ends[number]
        routes.append(RoutedLine(side, [start, *(point for bend in passed for point in bend), end], place))
    return routes
