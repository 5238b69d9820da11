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
from tests.values.ways import EQUAL, EXACT, REFUSED, WRONG, Outcome, Way, outcomes

__all__ = ("RECORDED", "found", "recorded", "signs")

# Way -> a sign for each value: "=" arrives as it was, "~" arrives in another form, "-" is refused.
RECORDED = Path(__file__).with_name("recorded.json")

_SIGNS = {EXACT: "=", EQUAL: "~", REFUSED: "-", WRONG: "!"}


def recorded() -> dict[str, str]:
    """The recorded matrix: the signs of all values by way."""
    return dict(json.loads(RECORDED.read_text()))


def signs(found: Mapping[int, Outcome]) -> str:
    """The outcomes of all values as signs."""
    return "".join(_SIGNS[found[position].kind] for position in range(len(VALUES)))


def found(ways: Sequence[Way]) -> tuple[dict[str, str], list[str]]:
    """Send all values through ways. Returns their signs, and what is wrong."""
    before, of_ways, wrong = recorded(), {}, []
    for way in ways:
        known = before.get(way.name, "")
        refused = {position for position, sign in enumerate(known) if sign == "-"}
        outcomes_of_way = outcomes(way, range(len(VALUES)), refused)
        of_ways[way.name] = signs(outcomes_of_way)
        wrong += [
            _described(way.name, position, outcome)
            for position, outcome in sorted(outcomes_of_way.items())
            if outcome.kind == WRONG or (outcome.kind == REFUSED and not _is_clear(outcome.error))
        ]
    return of_ways, wrong


def _is_clear(error: BaseException | None) -> bool:
    """Whether a refusal says where the value is: its field, state, key or watermark."""
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
    of_ways, wrong = found(local_ways())
    if "--record" not in sys.argv:
        print(json.dumps({"signs": of_ways, "wrong": wrong}))
        return
    print("\n".join(wrong))
    RECORDED.write_text(json.dumps({**recorded(), **of_ways}, indent=1) + "\n")
    write_page()


if __name__ == "__main__":
    main()
