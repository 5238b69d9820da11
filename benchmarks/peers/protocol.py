"""What a program of a contestant is told, and what it tells."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

__all__ = ("Notes", "Outcome", "Task", "warm_up_for")


def warm_up_for(records: int) -> int:
    """How many batches of so many records it takes until all run at their pace.

    The compilers of Java take some million records, or some dozen micro-batches.
    """
    return max(4, min(20, 6_000_000 // records))


@dataclass(frozen=True)
class Task:
    """``warm_up`` batches, in which everything starts and state fills up, then ``batches`` that are measured.

    An engine without batches calls so many records in a row a batch.
    """

    records: int
    """In a batch."""
    batches: int = 7
    warm_up: int = 2
    keys: int = 1000
    kind: str = "tuple"
    """Of records: ``tuple``, ``dataclass`` or ``dict``."""
    parallelism: int = 1
    """Subtasks or workers; what it means is the program's business."""
    mode: str = ""
    """Set-up of the contestant or variant of the job."""

    @property
    def total(self) -> int:
        """Records of the whole run."""
        return self.records * (self.warm_up + self.batches)

    def arguments(self) -> list[str]:
        """As a command line, for programs in every language."""
        return [text for name, value in asdict(self).items() for text in (f"--{name}", str(value))]

    @staticmethod
    def parse(arguments: Sequence[str]) -> Task:
        """From such a command line."""
        parser = argparse.ArgumentParser()
        for part in fields(Task):
            parser.add_argument(f"--{part.name}", type=str if part.type == "str" else int)
        return Task(**vars(parser.parse_args(arguments)))


@dataclass(frozen=True)
class Outcome:
    """What came of a task."""

    seconds: list[float]
    """Of each measured batch."""
    results: int
    """Number of results of the whole run, warm-up included."""
    checksum: int = 0
    """Sum over all results of what the job says; 0 where the number says all."""
    versions: dict[str, str] = field(default_factory=dict)
    """Of the packages that the contestant is."""

    def write(self, file: Path) -> None:
        """For whoever started the program."""
        file.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(file: Path) -> Outcome:
        """What a program has written."""
        content: dict[str, Any] = json.loads(file.read_text())
        return Outcome(**content)


class Notes:
    """A folder in which functions of an engine note, from whatever process they run in, when they have done what."""

    def __init__(self, folder: str) -> None:
        self._times = Path(folder, "times")
        self._results = Path(folder, "results")

    def passed(self, batch: int) -> None:
        """One subtask of the first function has passed on all its records up to the end of ``batch``, or 0 for none."""
        self._append(self._times, batch, time.time())

    def told(self, results: int, checksum: int) -> None:
        """One subtask of the last function has seen so much."""
        self._append(self._results, results, checksum)

    def outcome(self, task: Task, versions: dict[str, str]) -> Outcome:
        """Of the whole run. A batch is over when the last subtask has passed it."""
        ends: dict[int, float] = {}
        for line in self._times.read_text().splitlines():
            batch, moment = line.split()
            ends[int(batch)] = max(float(moment), ends.get(int(batch), 0))
        measured = range(task.warm_up, task.warm_up + task.batches)
        told = [line.split() for line in self._results.read_text().splitlines()]
        return Outcome(
            [ends[batch + 1] - ends[batch] for batch in measured],
            sum(int(results) for results, _ in told),
            sum(int(checksum) for _, checksum in told),
            versions,
        )

    def _append(self, file: Path, *words: float) -> None:
        with file.open("a") as lines:  # short lines are appended whole, whoever else does it
            lines.write(" ".join(map(str, words)) + "\n")
