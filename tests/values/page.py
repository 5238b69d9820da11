"""``docs/values.md``, whose tables are generated from the recorded matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.values.awkward import GROUPS, Group
from tests.values.matrix import EXPLAINED, recorded

__all__ = ("PAGE", "tables", "write_page")

PAGE = Path(__file__).parents[2] / "docs" / "values.md"

_BEGIN, _END = "<!-- generated: tables -->", "<!-- generated: end -->"


def tables() -> str:
    """The tables of the page."""
    of_families = groupby(GROUPS, lambda group: group.family)
    return "\n\n".join([*(_table(family, list(groups)) for family, groups in of_families), _explained()])


def _explained() -> str:
    lines = [f"- *{way}, {family.lower()}:* {reason}" for (way, family), reason in EXPLAINED.items()]
    return "\n".join(["### Explained differences", "", *lines])


def write_page() -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text()
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) :]
    PAGE.write_text(f"{before}{_BEGIN}\n\n{tables()}\n\n{after}")


def _table(family: str, groups: list[Group]) -> str:
    lines = [f"### {family}", "", "| values | arrive in another form | are refused |", "|---|---|---|"]
    lines += [f"| {group.name} | {_ways_with(group, '~*')} | {_ways_with(group, '-')} |" for group in groups]
    return "\n".join(lines)


def _ways_with(group: Group, wanted: str) -> str:
    return ", ".join(_named(group, wanted)) or "–"


def _named(group: Group, wanted: str) -> Iterator[str]:
    first = sum(len(other.values) for other in GROUPS[: GROUPS.index(group)])
    for way, signs in recorded().items():
        count = sum(sign in wanted for sign in signs[first : first + len(group.values)])
        if count:
            yield way if count == len(group.values) else f"{way} (some)"
