"""The oracle and the output of the program."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from storms.common.outputs import Output
from storms.jobs.changing.program import COUNT, KEYS

__all__ = ("expected", "written")

_COUNTING = ("counts", "helper", "method", "table", "callable", "declared", "pair", "field", "mapped", "once")


def expected() -> Output:
    """The expected lines of every operator at the end."""
    sizes = Counter(f"key-{index % KEYS}" for index in range(COUNT))
    numbered = [(key, nth) for key, size in sizes.items() for nth in range(1, size + 1)]
    lines = {name: Counter((name, key, nth) for key, nth in numbered) for name in _COUNTING}
    lines["twice"] = Counter(("twice", key, 2 * nth) for key, nth in numbered)
    lines["held"] = Counter((f"held {key}", key, nth) for key, nth in numbered)
    lines["mark"] = Counter(("mark", "", index) for index in range(COUNT))
    return lines


def written(folder: Path) -> Output:
    """The lines of the operators that the oracle covers."""
    lines: dict[str, Counter[tuple[str, str, int]]] = {name: Counter() for name in expected()}
    for file in (folder / "lines").glob("*.json"):
        name = file.name.split(" ")[0]
        if name in lines:
            lines[name].update(tuple(line) for line in json.loads(file.read_text()))
    return lines
