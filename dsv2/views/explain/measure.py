"""The approximate width of text, for diagrams without access to fonts."""

from __future__ import annotations

import unicodedata

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
