"""A layered layout of a directed graph without cycles (Sugiyama's method), for diagrams.

Boxes are placed in rows, so that all edges lead down. An edge that passes rows gets a narrow gap in each of them. The
order within rows follows the barycentres of neighbours; then each box moves to the mean place of its neighbours, as far
as the others allow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

_GAP = 44  # between boxes of a row; edges that leave a box at its side need it
_PASSING = 16  # the width of the gap for an edge that passes a row
_SWEEPS = 12

Point: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a box. ``above``: The space that it needs between it and the row before."""

    width: float
    height: float
    above: float = 0


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """The places of boxes and edges.

    Attributes:
        places: The upper left corner of each box.
        bends: For each edge, in the given order, the points through which it passes rows, as top and bottom of each.
        width: The width of the whole.
        height: The height of the whole.
    """

    places: Mapping[int, Point]
    bends: Sequence[Sequence[tuple[Point, Point]]]
    width: float
    height: float


def lay_out(boxes: Mapping[int, Size], edges: Sequence[tuple[int, int]]) -> GraphLayout:
    """Lay out ``boxes``, which are listed upstream first, with edges between their ids."""
    rows_of = _rows(list(boxes), edges)
    sizes = dict(boxes)
    paths = []
    for source, target in edges:
        passing = []
        for row in range(rows_of[source] + 1, rows_of[target]):
            number = min(*sizes, 0) - 1
            sizes[number] = Size(_PASSING, 0)
            rows_of[number] = row
            passing.append(number)
        paths.append([source, *passing, target])
    links = [link for path in paths for link in pairwise(path)]
    rows = _ordered(sizes, rows_of, links)
    centres = _centres(rows, sizes, links)
    left = min((centres[one] - sizes[one].width / 2 for one in sizes), default=0)
    tops, height = _heights(rows, sizes)
    right = max((centres[one] + sizes[one].width / 2 for one in sizes), default=0)
    places = {one: (centres[one] - sizes[one].width / 2 - left, tops[rows_of[one]][0]) for one in boxes}

    def bend(number: int) -> tuple[Point, Point]:
        top, bottom = tops[rows_of[number]]
        return (centres[number] - left, top), (centres[number] - left, bottom)

    return GraphLayout(places, [[bend(number) for number in path[1:-1]] for path in paths], right - left, height)


def _rows(boxes: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The row of each box: below everything upstream. Boxes without input are just above the first that reads them."""
    rows = dict.fromkeys(boxes, 0)
    for box in boxes:
        rows[box] = max((rows[source] + 1 for source, target in edges if target == box), default=0)
    read = {target for _, target in edges}
    for box in boxes:
        below = [rows[target] for source, target in edges if source == box]
        if box not in read and below:
            rows[box] = min(below) - 1
    return rows


def _ordered(sizes: Iterable[int], rows_of: Mapping[int, int], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The members of each row, in an order with few crossings."""
    rows: list[list[int]] = [[] for _ in range(max(rows_of.values(), default=-1) + 1)]
    for one in sizes:
        rows[rows_of[one]].append(one)
    best, fewest = [list(row) for row in rows], _crossings(rows, links)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = _neighbours(links, down)
        for row in rows if down else reversed(rows):
            places = {one: place for each in rows for place, one in enumerate(each)}
            row.sort(key=lambda one: _mean([places[other] for other in neighbours.get(one, ())], places[one]))
        if (crossings := _crossings(rows, links)) < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(rows: Sequence[Sequence[int]], links: Sequence[tuple[int, int]]) -> int:
    places = {one: (number, place) for number, row in enumerate(rows) for place, one in enumerate(row)}
    spans = [(places[source][0], places[source][1], places[target][1]) for source, target in links]
    return sum(
        row == other_row and (start - other_start) * (end - other_end) < 0
        for number, (row, start, end) in enumerate(spans)
        for other_row, other_start, other_end in spans[:number]
    )


def _centres(
    rows: Sequence[Sequence[int]], sizes: Mapping[int, Size], links: Sequence[tuple[int, int]]
) -> dict[int, float]:
    """The horizontal centre of each member of the rows."""
    centres: dict[int, float] = {}
    for row in rows:
        centres |= zip(row, _spread([0.0] * len(row), [sizes[one].width for one in row]), strict=True)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = _neighbours(links, down)
        for row in rows if down else reversed(rows):
            wanted = [_mean([centres[other] for other in neighbours.get(one, ())], centres[one]) for one in row]
            centres |= zip(row, _spread(wanted, [sizes[one].width for one in row]), strict=True)
    return centres


def _spread(wanted: Sequence[float], widths: Sequence[float]) -> list[float]:
    """The centres closest to the wanted ones at which boxes keep their order and distance (isotonic regression)."""
    offsets = [0.0]
    for width, following in pairwise(widths):
        offsets.append(offsets[-1] + (width + following) / 2 + _GAP)
    blocks: list[tuple[float, int]] = []  # mean and number of members of blocks that touch each other
    for place, offset in zip(wanted, offsets, strict=False):
        mean, count = place - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, members = blocks.pop()
            mean, count = (before * members + mean * count) / (members + count), members + count
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=False)]


def _heights(rows: Sequence[Sequence[int]], sizes: Mapping[int, Size]) -> tuple[list[tuple[float, float]], float]:
    """Top and bottom of each row, and the height of all."""
    found = []
    bottom = 0.0
    for row in rows:
        top = bottom + max(sizes[one].above for one in row)
        bottom = top + max(sizes[one].height for one in row)
        found.append((top, bottom))
    return found, bottom


def _neighbours(links: Sequence[tuple[int, int]], upstream: bool) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for source, target in links:
        one, other = (target, source) if upstream else (source, target)
        found.setdefault(one, []).append(other)
    return found


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise
