"""``docs/values.md``, whose tables are generated from the recorded matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.values.awkward import GROUPS, Group
from tests.values.matrix import recorded

__all__ = ("PAGE", "tables", "write_page")

PAGE = Path(__file__).parents[2] / "docs" / "values.md"

_BEGIN, _END = "<!-- generated: tables -->", "<!-- generated: end -->"


def tables() -> str:
    """The tables of the page."""
    return "\n\n".join(_table(family, list(groups)) for family, groups in groupby(GROUPS, lambda group: group.family))


def write_page() -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) :]
    PAGE.write_text(f"{before}{_BEGIN}\n\n{tables()}\n\n{after}")


def _table(family: str, groups: list[Group]) -> str:
    lines = [f"### {family}", "", "| values | arrive in another form | are refused |", "|---|---|---|"]
    lines += [f"| {group.name} | {_ways_with(group, '~')} | {_ways_with(group, '-')} |" for group in groups]
    return "\n".join(lines)


def _ways_with(group: Group, sign: str) -> str:
    return ", ".join(_named(group, sign)) or "–"


def _named(group: Group, sign: str) -> Iterator[str]:
    first = sum(len(other.values) for other in GROUPS[: GROUPS.index(group)])
    for way, signs in recorded().items():
        count = signs[first : first + len(group.values)].count(sign)
        if count:
            yield way if count == len(group.values) else f"{way} (some)"
