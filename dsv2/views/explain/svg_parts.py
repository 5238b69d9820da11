"""Parts of SVG images: the style of diagrams, arrows, and text."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from html import escape

from dsv2.base.printable import printable
from dsv2.graph import OperatorKind
from dsv2.views.explain.layout import Point, Size

_NARROW = frozenset("iIjl.,:;'`|!()[]{} ft/\\-r\"")
_BROAD = frozenset("mwMW@%—…")


def width_of(text: str, size: float, *, bold: bool = False) -> float:
    """The width in pixels of ``text`` in a sans-serif font of ``size`` pixels, rather too large than too small."""
    return sum(map(_width, text)) * size * (1.12 if bold else 1)


def cut(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """``text``, with an ellipsis if it is wider than ``width``."""
    if width_of(text, size, bold=bold) <= width:
        return text
    while text and width_of(f"{text}…", size, bold=bold) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def wrapped(text: str, width: float, size: float) -> list[str]:
    """``text`` in lines of at most ``width``. Words that are wider are cut."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(cut(word, width, size))
    return lines


def _width(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in _NARROW:
        return 0.38
    if letter in _BROAD:
        return 1.0
    return 0.72 if letter.isupper() else 0.62


LINE = 16
"""The height of a line of text."""
PAD = 10
"""The space around cards, and between their border and text."""
TITLE = 20
"""The height of the title of a card."""
_KINDS = {OperatorKind.SOURCE: "source", OperatorKind.SINK: "sink"}

STYLE = """
.dsv2-plan { --ink: #1f2933; --soft: #52606d; --line: #7b8794; --paper: #ffffff; --box: #f0f4f8; --edge: #d0d7de;
  --card: #ffffff; --source: #0b7285; --function: #364fc7; --sink: #6741d9; --warn: #b54708; --note: #8a6d00;
  --bad: #c92a2a; font-family: system-ui, -apple-system, "Segoe UI", Roboto, Helvetica, Arial, sans-serif; }
@media (prefers-color-scheme: dark) { .dsv2-plan { --ink: #e6edf3; --soft: #a8b3bf; --line: #8b98a5;
  --paper: #0d1117; --box: #161b22; --edge: #30363d; --card: #1f2630; --source: #3bc9db; --function: #91a7ff;
  --sink: #b197fc; --warn: #ffa94d; --note: #ffd43b; --bad: #ff8787; } }
.dsv2-plan .paper { fill: var(--paper); }
.dsv2-plan .box { fill: var(--box); stroke: var(--edge); }
.dsv2-plan .card { fill: var(--card); stroke: var(--edge); }
.dsv2-plan .bad { stroke: var(--bad); stroke-width: 2; }
.dsv2-plan text { fill: var(--soft); font-size: 12px; }
.dsv2-plan .title { fill: var(--ink); font-size: 13px; font-weight: 600; }
.dsv2-plan .plan { fill: var(--ink); font-size: 16px; font-weight: 600; }
.dsv2-plan .error { fill: var(--bad); }
.dsv2-plan .level { font-size: 11px; }
.dsv2-plan .source { fill: var(--source); } .dsv2-plan .function { fill: var(--function); }
.dsv2-plan .sink { fill: var(--sink); }
.dsv2-plan .warning { fill: var(--warn); font-weight: 700; } .dsv2-plan .note { fill: var(--note); font-weight: 700; }
.dsv2-plan .line { fill: none; stroke: var(--line); stroke-width: 1.5; }
.dsv2-plan .inside { stroke-width: 1; }
.dsv2-plan .head { fill: var(--line); }
.dsv2-plan .on-edge { font-size: 11px; paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
"""
"""Colours for light and dark viewers, for elements of the class ``dsv2-plan``."""


def svg_document(
    width: float, height: float, title: str, description: str, parts: Iterable[str], *, style: str = ""
) -> str:
    """Return an SVG document.

    Args:
        width: Its width in pixels.
        height: Its height in pixels.
        title: Its title.
        description: Its content as text, for screen readers.
        parts: The elements to draw.
        style: Rules of the diagram, besides the common ones.
    """
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="dsv2-plan" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" style="max-width: 100%; height: auto">',
        f"<title>{xml_text(title)}</title>",
        f"<desc>{xml_text(description, lines=True)}</desc>",
        f"<style>{STYLE}{style.lstrip()}</style>",
        f'<rect class="paper" width="{width:.0f}" height="{height:.0f}" rx="8"/>',
        *parts,
        "</svg>",
    )
    return "\n".join(lines) + "\n"


def card(
    kind: OperatorKind, place: Point, size: Size, title: str, lines: Sequence[str], css: str = ""
) -> Iterator[str]:
    """Draw the card of an operator, whose kind has a colour. ``title``: A text that fits. ``css``: A class."""
    x, y = place
    yield (
        f'<rect class="card{css}" x="{x:.1f}" y="{y:.1f}" width="{size.width:.1f}" height="{size.height:.1f}" rx="5"/>'
        f'<rect class="{_KINDS.get(kind, "function")}" x="{x:.1f}" y="{y + 5:.1f}" width="3" '
        f'height="{size.height - 10:.1f}"/>'
    )
    yield f'<text class="title" x="{x + PAD:.1f}" y="{y + 18:.1f}">{xml_text(title)}</text>'
    for number, line in enumerate(lines):
        shown = cut(line, size.width - 2 * PAD + 0.1, 12)  # more, as widths are sums of floats
        yield f'<text x="{x + PAD:.1f}" y="{y + 18 + LINE * (number + 1):.1f}">{xml_text(shown)}</text>'


def arrow(x: float, y: float, *, right: bool = False) -> str:
    """The head of an arrow whose tip is at a point."""
    base = ((x - 6, y - 4), (x - 6, y + 4)) if right else ((x - 4, y - 6), (x + 4, y - 6))
    corners = " ".join(f"{across:.1f},{down:.1f}" for across, down in base)
    return f'<polygon class="head" points="{x:.1f},{y:.1f} {corners}"/>'


def xml_text(text: str, *, lines: bool = False) -> str:
    """Text as XML, in one line unless ``lines`` is set."""
    return escape("\n".join(map(printable, text.split("\n"))) if lines else text)
