"""``docs/values.md``, whose tables are generated from the recorded matrix."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tests import ROOT
from tests.values.awkward import GROUPS, Group
from tests.values.matrix import EXPLAINED, recorded

PAGE = ROOT / "docs" / "values.md"

# Ways that are named together where they have the same result.
_FAMILIES = {
    "columns": ("function on tables", "sink on tables", "First in columns", "Max in columns"),
    "tables": ("function on tables", "sink on tables"),
    "both kinds of Avro": ("Avro", "Avro with local times"),
    "files": ("Parquet", "JSON files", "CSV"),
}

_SOME = " (some)"
_BEGIN, _END = "<!-- generated: tables -->", "<!-- generated: end -->"


def tables() -> str:
    """The tables of the page."""
    of_families = groupby(GROUPS, lambda group: group.family)
    return "\n\n".join([*(_table(family, list(groups)) for family, groups in of_families), _explained()])


def write_page() -> None:
    """Replace the tables of the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(_BEGIN)], text[text.index(_END) :]
    PAGE.write_text(f"{before}{_BEGIN}\n\n{tables()}\n\n{after}", encoding="utf-8")


def _table(family: str, groups: list[Group]) -> str:
    rows = [(group.name, _ways_with(group, "~*"), _ways_with(group, "-")) for group in groups]
    kept = [name for name, *ways in rows if not any(ways)]
    lines = [f"### {family}", ""]
    if kept:
        lines += [f"All ways return exactly: {', '.join(kept)}.", ""]
    if len(kept) < len(rows):
        lines += ["| values | arrive in another form | are refused |", "|---|---|---|"]
    lines += [f"| {name} | {other or '–'} | {refused or '–'} |" for name, other, refused in rows if other or refused]
    return "\n".join(lines).rstrip()


def _ways_with(group: Group, wanted: str) -> str:
    named = dict(_named(group, wanted))
    for family, ways in _FAMILIES.items():
        for suffix in ("", _SOME):
            if all(named.get(way) == way + suffix for way in ways):
                named[ways[0]] = family + suffix
                named = {way: shown for way, shown in named.items() if way not in ways[1:]}
    return ", ".join(named.values())


def _named(group: Group, wanted: str) -> Iterator[tuple[str, str]]:
    first = sum(len(other.values) for other in GROUPS[: GROUPS.index(group)])
    for way, signs in recorded().items():
        count = sum(sign in wanted for sign in signs[first : first + len(group.values)])
        if count:
            yield way, way if count == len(group.values) else way + _SOME


def _explained() -> str:
    ways: dict[tuple[str, str], list[str]] = {}
    for (way, family), reason in EXPLAINED.items():
        ways.setdefault((family, reason), []).append(way)
    lines = [f"- *{family}, {', '.join(names)}:* {reason}" for (family, reason), names in ways.items()]
    return "\n".join(["### Explained differences", "", *lines])
