"""The matrix of values and ways: what was recorded, and what a run finds.

``python -m tests.values.matrix`` sends all values through the local ways and prints what it finds as JSON.
``python -m tests.values.matrix --record`` records it, and writes the page.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

from dsv2.errors import Dsv2Warning
from tests.values.awkward import VALUES
from tests.values.ways import EQUAL, EXACT, NOT_SENT, REFUSED, WRONG, Outcome, Way, outcomes

# Way -> a sign for each value: "=" arrives as it was, "~" arrives in another form, "-" is refused,
# "." is not sent, "*" arrives as another value, which is explained.
RECORDED = Path(__file__).with_name("recorded.json")

# (Way, family) -> why values of the family arrive as others. The page has these sentences.
_NAIVE = (
    "A time without zone is one of the session's zone, or of the process on the local runtime, where the column is a "
    "`timestamp`, as in Spark. A schema with `timestamp_ntz` keeps it."
)
EXPLAINED: dict[tuple[str, str], str] = {
    ("Parquet", "Times without zone"): _NAIVE,
    ("JSON files", "Times without zone"): _NAIVE,
    ("CSV", "Times without zone"): _NAIVE,
    ("from pandas", "Optional values"): (
        "In a DataFrame of pandas, NaN in a column of numbers is a missing value: None, if the field is optional."
    ),
}

_SIGNS = {EXACT: "=", EQUAL: "~", REFUSED: "-", NOT_SENT: ".", WRONG: "!"}


def recorded() -> dict[str, str]:
    """The recorded matrix: the signs of all values by way."""
    return dict(json.loads(RECORDED.read_text()))


def signs(way: str, found: Mapping[int, Outcome]) -> str:
    """The outcomes of all values as signs."""
    return "".join("*" if _is_explained(way, p, found[p]) else _SIGNS[found[p].kind] for p in range(len(VALUES)))


def _is_explained(way: str, position: int, outcome: Outcome) -> bool:
    return outcome.kind == WRONG and outcome.error is None and (way, VALUES[position][0].family) in EXPLAINED


def found(ways: Sequence[Way], *, all_refused: bool) -> tuple[dict[str, str], list[str]]:
    """Send all values through ways. Returns their signs, and what is wrong."""
    before, of_ways, wrong = recorded(), {}, []
    for way in ways:
        known = before.get(way.name, "")
        refused = {position: sign for position, sign in enumerate(known) if sign in "-."}
        outcomes_of_way = outcomes(way, range(len(VALUES)), refused, all_refused=all_refused)
        of_ways[way.name] = signs(way.name, outcomes_of_way)
        wrong += [
            _described(way.name, position, outcome)
            for position, outcome in sorted(outcomes_of_way.items())
            if (outcome.kind == WRONG and not _is_explained(way.name, position, outcome))
            or (outcome.kind == REFUSED and not _is_clear(outcome.error))
        ]
    return of_ways, wrong


def _is_clear(error: BaseException | None) -> bool:
    """Return whether a refusal says where the value is: its field, state, key or watermark."""
    return any(word in str(error) for word in ("value", "key", "watermark"))


def _described(way: str, position: int, outcome: Outcome) -> str:
    group, value = VALUES[position]
    try:
        shown = repr(value)[:60]
    except ValueError:
        shown = f"a value of type {type(value).__name__}"
    what = outcome.received if outcome.error is None else f"{type(outcome.error).__name__}: {str(outcome.error)[:300]}"
    return f"{way}: {group.family}, {group.name}: {shown} -> {what}"


def main() -> None:
    """Prints what the local ways do, or records it."""
    from tests.values.local_ways import local_ways
    from tests.values.page import write_page

    warnings.simplefilter("ignore", Dsv2Warning)
    records = "--record" in sys.argv
    of_ways, wrong = found(local_ways(), all_refused=records)
    if not records:
        print(json.dumps({"signs": of_ways, "wrong": wrong}))
        return
    print("\n".join(wrong))
    RECORDED.write_text(json.dumps({**recorded(), **of_ways}, indent=1) + "\n")
    write_page()


if __name__ == "__main__":
    main()
