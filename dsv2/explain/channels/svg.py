"""The channels of a plan as an SVG image: a card for each operator in each subtask, and an arrow for each channel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from dsv2.explain.channels.model import Channel, ChannelsView, EdgeChannels, Mark, OperatorChannels, shown_subtasks
from dsv2.explain.channels.text import to_text
from dsv2.explain.layout import Layout, Point, Size, lay_out
from dsv2.explain.measure import cut, width_of, wrapped
from dsv2.explain.stack import LINK, Stack, links, stacked
from dsv2.explain.svg_parts import arrow, svg_document, xml_text
from dsv2.graph import OperatorKind
from dsv2.printable import printable

__all__ = ("to_svg",)

_MARGIN = 16
_HEADER = 44  # the title
_PAD = 8  # around cards and between text and border
_LINE = 16
_TITLE = 20
_LEAST, _MOST = 110, 176  # the width of text in a card
_GAP = 18  # between subtasks
_HIDDEN = 76  # between subtasks, where others are left out
_SPACE = 56  # between rows, without labels of edges
_SAMPLE = 26  # the line of an entry of the legend

_CHANNELS = """
.dsv2-plan .carries, .dsv2-plan .of-key { stroke: var(--function); stroke-width: 2; }
.dsv2-plan .carries + .head, .dsv2-plan .of-key + .head { fill: var(--function); }
.dsv2-plan .of-other-keys { stroke-width: 1; }
.dsv2-plan .bare { stroke-dasharray: 3 4; }
.dsv2-plan .gate { stroke: var(--warn); stroke-width: 3; }
"""

_Ends: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Box:
    """The subtasks of a chain.

    Attributes:
        stack: The operators.
        lines: The lines of text of each operator.
        tops: The upper border of each operator in the box.
        card: The width of a card.
        columns: The left border of each subtask that is drawn, by its number.
        hidden: The number of subtasks that are left out.
        width: The width of the box.
        height: The height of the box.
    """

    stack: Stack
    lines: Mapping[int, Sequence[str]]
    tops: Mapping[int, float]
    card: float
    columns: Mapping[int, float]
    hidden: int
    width: float
    height: float

    def height_of(self, operator: int) -> float:
        """The height of the card of an operator."""
        return _TITLE + _LINE * len(self.lines[operator]) + _PAD


@dataclass(frozen=True, slots=True)
class _Arrow:
    """A channel: where it leaves its subtask, at the bottom or at the side of a card, and where it arrives."""

    edge: int
    channel: Channel
    start: Point
    side: Point | None
    end: Point


def to_svg(view: ChannelsView) -> str:
    """Return the channels as an SVG document."""
    chains = view.chains
    head_of = {one.operator.id: head for head, chain in chains.items() for one in chain}
    boxes = {head: _box(view, chain) for head, chain in chains.items()}
    edges = [edge for edge in view.edges if not edge.edge.chained]
    ends = [(head_of[edge.edge.source], head_of[edge.edge.target]) for edge in edges]
    leaving = {head: sum(source == head for source, _ in ends) for head in boxes}
    sizes = {
        head: Size(
            box.width, box.height, max((_SPACE + _LINE * leaving[one] for one, to in ends if to == head), default=0)
        )
        for head, box in boxes.items()
    }
    layout = lay_out(sizes, ends)
    width = max(layout.width, width_of(view.title, 16, bold=True)) + 2 * _MARGIN
    width = max(width, *(width_of(text, 12) + _SAMPLE + 2 * _MARGIN for text in (*view.legend.values(), "")))
    rules = wrapped(view.rules, width - 2 * _MARGIN, 12)
    header = _HEADER + _LINE * len(rules)
    legend = header + layout.height + 28
    height = legend + _LINE * len(view.legend)
    left = (width - layout.width) / 2
    parts = [
        f'<text class="plan" x="{_MARGIN}" y="28">{xml_text(view.title)}</text>',
        *(
            f'<text x="{_MARGIN}" y="{46 + _LINE * number}">{xml_text(line)}</text>'
            for number, line in enumerate(rules)
        ),
        f'<g transform="translate({left:.1f} {header})">',
        *(_background(box, layout.places[head]) for head, box in boxes.items()),
        *_edges(view, boxes, edges, ends, layout),
        *(line for head, box in boxes.items() for line in _subtasks(view, box, layout.places[head])),
        *_labels(boxes, edges, ends, layout),
        "</g>",
        *_legend(view, legend),
    ]
    return svg_document(width, height, view.title, to_text(view), parts, style=_CHANNELS)


def _box(view: ChannelsView, chain: Sequence[OperatorChannels]) -> _Box:
    stack = stacked([one.operator for one in chain], [edge.edge for edge in view.edges])
    lines = {one.operator.id: [line for role in one.roles for line in wrapped(role, _MOST, 12)] for one in chain}
    subtasks, hidden = shown_subtasks(chain[0].operator.parallelism)
    texts = [width_of(line, 12) for of_one in lines.values() for line in of_one]
    titles = [width_of(f"{printable(one.title)} {subtasks[-1]}", 13, bold=True) for one in stack.operators]
    card = min(max(*texts, *titles, _LEAST), _MOST) + 2 * _PAD
    tops, top = {}, float(_PAD)
    for one in stack.operators:
        tops[one.id] = top
        top += _TITLE + _LINE * len(lines[one.id]) + _PAD + LINK
    columns, x = {}, _PAD + stack.rail
    for number in subtasks:
        x += (_HIDDEN - _GAP) * (hidden > 0 and number == subtasks[-1])
        columns[number] = x
        x += card + _GAP + stack.rail
    inner = x - _GAP - stack.rail + _PAD
    exchanges = [edge for edge in view.edges if not edge.edge.chained]
    labels = [width_of(one.label, 11) for one in exchanges if tops.keys() & {one.edge.source, one.edge.target}]
    width = max(inner, *labels, 0)
    columns = {number: column + (width - inner) / 2 for number, column in columns.items()}
    return _Box(stack, lines, tops, card, columns, hidden, width, top - LINK + _PAD)


def _background(box: _Box, place: Point) -> str:
    return (
        f'<rect class="box" x="{place[0]:.1f}" y="{place[1]:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" '
        f'rx="8"/>'
    )


def _subtasks(view: ChannelsView, box: _Box, place: Point) -> Iterator[str]:
    x, y = place
    marks = {(edge.edge.source, edge.edge.target): edge for edge in view.edges if edge.edge.chained}
    tops = {operator: y + top for operator, top in box.tops.items()}
    for number, column in box.columns.items():

        def attributes(source: int, target: int, subtask: int = number) -> str:
            css = _css(marks[source, target].channels[0].mark)
            return f'class="line {css}" data-channel="{source}.{subtask}-{target}.{subtask}-0"'

        yield from links(box.stack, tops, x + column, box.card, _TITLE - 5, attributes)
        for operator in box.stack.operators:
            yield from _card(view.operators[operator.id], box, number, (x + column, tops[operator.id]))
    if box.hidden:
        *_, before, last = box.columns.values()
        middle = x + (before + box.card + last) / 2
        for line, text in enumerate(("…", f"{box.hidden} more")):
            top = y + box.height / 2 + _LINE * line
            yield f'<text x="{middle:.1f}" y="{top:.1f}" text-anchor="middle">{text}</text>'


def _card(shown: OperatorChannels, box: _Box, subtask: int, place: Point) -> Iterator[str]:
    operator, (x, y) = shown.operator, place
    kind = "source" if operator.kind is OperatorKind.SOURCE else "function"
    height = box.height_of(operator.id)
    tooltip = "\n".join((f"{operator.title}, subtask {subtask}", *shown.roles))
    yield f'<g data-subtask="{operator.id}.{subtask}"><title>{xml_text(tooltip, lines=True)}</title>'
    yield (
        f'<rect class="card" x="{x:.1f}" y="{y:.1f}" width="{box.card:.1f}" height="{height:.1f}" rx="5"/>'
        f'<rect class="{kind}" x="{x:.1f}" y="{y + 5:.1f}" width="3" height="{height - 10:.1f}"/>'
    )
    room = box.card - 2 * _PAD - width_of(f" {subtask}", 13, bold=True)
    title = f"{cut(printable(operator.title), room, 13, bold=True)} {subtask}"
    yield f'<text class="title" x="{x + _PAD:.1f}" y="{y + 18:.1f}">{xml_text(title)}</text>'
    for number, line in enumerate(box.lines[operator.id]):
        yield f'<text x="{x + _PAD:.1f}" y="{y + 18 + _LINE * (number + 1):.1f}">{xml_text(line)}</text>'
    yield "</g>"


def _edges(
    view: ChannelsView, boxes: Mapping[int, _Box], edges: Sequence[EdgeChannels], ends: Sequence[_Ends], layout: Layout
) -> Iterator[str]:
    """Draw the channels, those that carry the watermark above the others."""
    arrows = _arrows(boxes, edges, ends, layout)
    order = [Mark.BARE, Mark.OF_OTHER_KEYS, Mark.CARRIES, Mark.OF_KEY]
    for one in sorted(arrows, key=lambda one: order.index(one.channel.mark)):
        edge = edges[one.edge].edge
        points = [
            one.start,
            *(point for bend in layout.bends[one.edge] for point in bend),
            (one.end[0], one.end[1] - 5),
        ]
        path = f"M{one.start[0]:.1f} {one.start[1]:.1f}"
        if one.side is not None:  # out of the side of a card, then down
            (x, y), (turn, bottom) = one.side, one.start
            path = f"M{x:.1f} {y:.1f}H{turn - 5:.1f}Q{turn:.1f} {y:.1f} {turn:.1f} {y + 5:.1f}V{bottom:.1f}"
        for leg, (start, end) in enumerate(pairwise(points)):
            if leg % 2 and leg < len(points) - 2:
                path += f"L{end[0]:.1f} {end[1]:.1f}"  # through a row
                continue
            bend = (end[1] - start[1]) / 2
            path += f"C{start[0]:.1f} {start[1] + bend:.1f} {end[0]:.1f} {end[1] - bend:.1f} {end[0]:.1f} {end[1]:.1f}"
        name = f"{edge.source}.{one.channel.source}-{edge.target}.{one.channel.target}-{edge.input}"
        yield f'<path class="line {_css(one.channel.mark)}" data-channel="{name}" d="{path}"/>{arrow(*one.end)}'
        if edges[one.edge].blocked:
            yield _gate(one.end[0], one.end[1] - 10)


def _arrows(
    boxes: Mapping[int, _Box], edges: Sequence[EdgeChannels], ends: Sequence[_Ends], layout: Layout
) -> list[_Arrow]:
    """Where channels leave and arrive: spread over the width of each subtask, in the order of the other ends."""
    channels = [(number, channel) for number, edge in enumerate(edges) for channel in edge.channels]
    starts: dict[int, tuple[Point, Point | None]] = {}
    arrivals: dict[int, Point] = {}

    def centre(head: int, subtask: int) -> float:
        return layout.places[head][0] + boxes[head].columns[subtask] + boxes[head].card / 2

    def to(which: int) -> float:
        number, channel = channels[which]
        bends = layout.bends[number]
        return bends[0][0][0] if bends else centre(ends[number][1], channel.target)

    def origin(which: int) -> float:
        number, channel = channels[which]
        bends = layout.bends[number]
        return bends[-1][1][0] if bends else centre(ends[number][0], channel.source)

    for head, box in boxes.items():
        x, y = layout.places[head]
        last = box.stack.operators[-1].id
        for subtask, column in box.columns.items():
            left = x + column
            leaving = sorted(
                (n for n, (edge, one) in enumerate(channels) if (ends[edge][0], one.source) == (head, subtask)), key=to
            )
            below = [which for which in leaving if edges[channels[which][0]].edge.source == last]
            for place, which in enumerate(below):
                starts[which] = (left + box.card * (place + 1) / (len(below) + 1), y + box.height - _PAD), None
            for place, which in enumerate(which for which in leaving if which not in below):
                operator = edges[channels[which][0]].edge.source
                middle = y + box.tops[operator] + box.height_of(operator) / 2
                turn = left + box.card + 6 + 3 * (place % 3)
                starts[which] = (turn, y + box.height), (left + box.card, middle)
            arriving = sorted(
                (n for n, (edge, one) in enumerate(channels) if (ends[edge][1], one.target) == (head, subtask)),
                key=origin,
            )
            for place, which in enumerate(arriving):
                arrivals[which] = left + box.card * (place + 1) / (len(arriving) + 1), y + _PAD
    return [
        _Arrow(number, channel, *starts[which], arrivals[which]) for which, (number, channel) in enumerate(channels)
    ]


def _labels(
    boxes: Mapping[int, _Box], edges: Sequence[EdgeChannels], ends: Sequence[_Ends], layout: Layout
) -> Iterator[str]:
    """Draw the labels of edges at the end where there is no other one, otherwise below the chain that they leave."""
    for head in boxes:
        leaving = [number for number, (source, _) in enumerate(ends) if source == head]
        leaving.sort(key=lambda number: layout.places[ends[number][1]])
        line = 0
        for number in leaving:
            target = ends[number][1]
            arriving = sum(other == target for _, other in ends)
            if len(leaving) > 1 and arriving == 1:
                yield _label(edges[number].label, boxes[target], layout.places[target], -12)
                continue
            text = edges[number].label
            if len(leaving) > 1:
                place = f" input {edges[number].edge.input + 1}" if arriving > 1 else ""
                text = f"{boxes[target].stack.operators[0].title}{place}: {text}"
            yield _label(text, boxes[head], layout.places[head], boxes[head].height + 14 + _LINE * line)
            line += 1


def _label(text: str, box: _Box, place: Point, down: float) -> str:
    x, y = place[0] + box.width / 2, place[1] + down
    shown = cut(printable(text), max(box.width, _MOST), 11)
    return f'<text class="on-edge" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{xml_text(shown)}</text>'


def _legend(view: ChannelsView, top: float) -> Iterator[str]:
    for line, (mark, text) in enumerate(view.legend.items()):
        y = top + _LINE * line
        if mark is None:
            yield f'<path class="line" d="M{_MARGIN} {y:.1f}h18"/>'
            yield f'<path class="gate" d="M{_MARGIN + 9} {y - 5:.1f}v10"/>'
        else:
            yield f'<path class="line {_css(mark)}" d="M{_MARGIN} {y:.1f}h18"/>'
        yield f'<text x="{_MARGIN + _SAMPLE}" y="{y + 4:.1f}">{xml_text(text)}</text>'


def _gate(x: float, y: float) -> str:
    """The mark of a channel that is blocked."""
    return f'<path class="gate" d="M{x - 5:.1f} {y:.1f}h10"/>'


def _css(mark: Mark) -> str:
    return mark.value.replace(" ", "-")
