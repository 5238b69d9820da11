"""The graph of a plan as places and paths. The page draws it, and colours it as the job goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv2.explain.layout import Layout, Point, Size, lay_out
from dsv2.explain.model import EdgeView, OperatorView, PlanView
from dsv2.explain.wording import edge_text

__all__ = ("CardPicture", "EdgePicture", "Picture", "picture_of")

_WIDTH, _HEIGHT = 210, 78
_ABOVE, _LINE = 34, 14  # between rows, and for the label of each edge that arrives
_MARGIN = 12


@dataclass(frozen=True, slots=True)
class CardPicture:
    """The card of an operator.

    Attributes:
        operator: The id of the operator.
        x: The left edge.
        y: The upper edge.
        upstream: The ids of the operators that it reads.
        downstream: The ids of the operators that read it.
        beside: The ids of the operators in its row, itself included, from left to right.
    """

    operator: int
    x: float
    y: float
    upstream: tuple[int, ...]
    downstream: tuple[int, ...]
    beside: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EdgePicture:
    """An edge.

    Attributes:
        source: The id of the operator upstream.
        target: The id of the operator downstream.
        path: The line, in the syntax of SVG, without the head of the arrow.
        end: Where its tip is.
        chained: Whether both ends run in one subtask.
        label: How records are distributed; "" for a chained edge.
        label_at: The centre of the base line of the label.
    """

    source: int
    target: int
    path: str
    end: Point
    chained: bool
    label: str
    label_at: Point


@dataclass(frozen=True, slots=True)
class Picture:
    """A graph, and the size of the whole and of each card, in pixels."""

    width: float
    height: float
    card_width: float
    card_height: float
    cards: tuple[CardPicture, ...]
    edges: tuple[EdgePicture, ...]


def picture_of(view: PlanView) -> Picture:
    """Lay out a plan."""
    labelled = [sum(not edge.chained for edge in view.edges_into(operator)) for operator in view.operators]
    boxes = {
        operator.id: Size(_WIDTH, _HEIGHT, _ABOVE + _LINE * labelled[operator.id] if view.edges_into(operator) else 0)
        for operator in view.operators
    }
    layout = lay_out(boxes, [(edge.source, edge.target) for edge in view.edges])
    return Picture(
        layout.width + 2 * _MARGIN,
        layout.height + 2 * _MARGIN,
        _WIDTH,
        _HEIGHT,
        tuple(_card(operator, view, layout) for operator in view.operators),
        tuple(_edges(view, layout)),
    )


def _card(operator: OperatorView, view: PlanView, layout: Layout) -> CardPicture:
    x, y = layout.places[operator.id]
    in_row = sorted((place[0], other) for other, place in layout.places.items() if place[1] == y)
    return CardPicture(
        operator.id,
        x + _MARGIN,
        y + _MARGIN,
        tuple(edge.source for edge in view.edges_into(operator)),
        tuple(dict.fromkeys(edge.target for edge in view.edges if edge.source == operator.id)),
        tuple(other for _, other in in_row),
    )


def _edges(view: PlanView, layout: Layout) -> list[EdgePicture]:
    starts = _ports(view.edges, layout, leaving=True)
    ends = _ports(view.edges, layout, leaving=False)
    found, lines = [], dict.fromkeys((operator.id for operator in view.operators), 0)
    for number, edge in enumerate(view.edges):
        points = [starts[number], *(point for bend in layout.bends[number] for point in bend), ends[number]]
        moved = [(x + _MARGIN, y + _MARGIN) for x, y in points]
        x, y = moved[-1]
        label = "" if edge.chained else edge_text(edge)
        place = (x, y - 12 - _LINE * lines[edge.target])
        lines[edge.target] += bool(label)
        found.append(EdgePicture(edge.source, edge.target, _path(moved), (x, y), edge.chained, label, place))
    return found


def _path(points: Sequence[Point]) -> str:
    """A smooth line through points that come in pairs: between rows it bends, through a row it is straight."""
    (x, y), last = points[0], points[-1]
    legs = [*points[1:-1], (last[0], last[1] - 6)]
    path = f"M{x:.1f} {y:.1f}"
    for number, (to_x, to_y) in enumerate(legs):
        if number % 2:
            path += f"L{to_x:.1f} {to_y:.1f}"
        else:
            bend = (to_y - y) / 2
            path += f"C{x:.1f} {y + bend:.1f} {to_x:.1f} {to_y - bend:.1f} {to_x:.1f} {to_y:.1f}"
        x, y = to_x, to_y
    return path


def _ports(edges: Sequence[EdgeView], layout: Layout, *, leaving: bool) -> list[Point]:
    """Where edges leave or reach their cards: spread over the width, in the order of where they lead."""
    ports: list[Point] = [(0.0, 0.0)] * len(edges)
    for operator, (x, y) in layout.places.items():
        own = [number for number, edge in enumerate(edges) if (edge.source if leaving else edge.target) == operator]

        def towards(number: int) -> float:
            bends = layout.bends[number]
            if bends:
                return (bends[0] if leaving else bends[-1])[0][0]
            other = edges[number].target if leaving else edges[number].source
            return layout.places[other][0] + _WIDTH / 2

        for place, number in enumerate(sorted(own, key=towards)):
            ports[number] = (x + _WIDTH * (place + 1) / (len(own) + 1), y + _HEIGHT if leaving else y)
    return ports
