"""Stored measurements, one per contestant and setting, so that a suite can be measured in several runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from benchmarks.common.machine import processor
from benchmarks.common.measure import Sample

__all__ = ("Row", "Rows")


@dataclass(frozen=True)
class Row:
    """The measurement of one contestant in one setting."""

    contestant: str
    keys: int
    kind: str
    size: int
    """The requested number of records in a batch."""
    records: int
    """The number of records in a batch of this contestant."""
    seconds: list[float] = field(default_factory=list)
    results: int = 0
    checksum: int = 0
    versions: dict[str, str] = field(default_factory=dict)
    date: str = ""
    load: float = 0.0
    """The load average of the machine over the minute before."""
    missing: str = ""
    """The reason if there is no measurement."""
    processor: str = ""
    """The processor of the machine. Speeds are compared on the same one only."""
    rounds: list[int] = field(default_factory=list)
    """The number of ``seconds`` of each round. Empty: all belong to one."""

    @property
    def sample(self) -> Sample:
        """The times of the measured batches."""
        return Sample.of(self.seconds)

    @property
    def pace(self) -> float:
        """The median throughput, in records per second."""
        return self.records / self.sample.median

    @property
    def paces(self) -> list[float]:
        """The median throughput of each round, in records per second."""
        ends = [0, *accumulate(self.rounds or [len(self.seconds)])]
        return [self.records / Sample.of(self.seconds[begin:end]).median for begin, end in pairwise(ends)]

    def ratios(self, other: Row) -> Sample:
        """The throughput relative to that of ``other`` in each round; in all of them if their numbers differ."""
        ours, theirs = self.paces, other.paces
        if len(ours) != len(theirs):
            ours, theirs = [self.pace], [other.pace]
        return Sample.of(one / another for one, another in zip(ours, theirs, strict=True))

    def and_again(self, later: Row) -> Row:
        """Combine two measurements: the times of both, unless the later one is missing."""
        if later.missing:
            return later
        rounds = [*(self.rounds or [len(self.seconds)]), len(later.seconds)]
        return replace(later, seconds=[*self.seconds, *later.seconds], rounds=rounds)


class Rows:
    """The measurements of one job in ``DIR/rows/NAME.json``, or only in memory if there is no folder.

    Those of machines with another processor are kept apart.
    """

    def __init__(self, folder: Path | None, name: str, here: str | None = None) -> None:
        """``here``: the processor of this machine, if not the real one."""
        self._here = processor() if here is None else here
        self._file = folder / "rows" / f"{name}.json" if folder is not None else None
        self._rows: dict[tuple[str, str, int, str, int], Row] = {}
        if self._file is not None and self._file.exists():
            content: list[dict[str, Any]] = json.loads(self._file.read_text())
            for row in content:
                self._hold(Row(**row))

    def all(self) -> list[Row]:
        """All measurements."""
        return [self._rows[setting] for setting in sorted(self._rows)]

    def of_this_machine(self) -> list[Row]:
        """The measurements of machines with the processor of this one."""
        return [row for row in self.all() if row.processor == self._here]

    def find(self, contestant: str, keys: int, kind: str, size: int) -> Row | None:
        """The measurement of this machine in one setting, if there is one."""
        return self._rows.get((self._here, contestant, keys, kind, size))

    def put(self, row: Row) -> None:
        """Store a measurement of this machine. It replaces an earlier one."""
        self._hold(replace(row, processor=self._here))
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps([asdict(row) for row in self.all()], indent=1, ensure_ascii=False) + "\n")

    def measure(self, rounds: int, measurements: Sequence[Callable[[], Row]]) -> None:
        """Run each measurement once per round, and replace earlier results. Failed ones are not repeated."""
        so_far: dict[int, Row] = {}
        for _ in range(rounds):
            for number, measurement in enumerate(measurements):
                before = so_far.get(number)
                if before is None or not before.missing:
                    row = measurement()
                    so_far[number] = row if before is None else before.and_again(row)
                    self.put(so_far[number])

    def _hold(self, row: Row) -> None:
        self._rows[row.processor, row.contestant, row.keys, row.kind, row.size] = row
