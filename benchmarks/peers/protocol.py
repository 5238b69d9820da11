"""The input and output of a contestant's program."""

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
    """The number of batches with ``records`` records until the throughput is steady.

    Java's compilers require some million records, or some dozen micro-batches.
    """
    return max(4, min(20, 6_000_000 // records))


@dataclass(frozen=True)
class Task:
    """The task of a program: ``warm_up`` batches, and then ``batches`` that are measured.

    In an engine without batches, a batch is a number of consecutive records.
    """

    records: int
    """The number of records in a batch."""
    batches: int = 7
    warm_up: int = 2
    keys: int = 1000
    kind: str = "tuple"
    """The kind of records: ``tuple``, ``dataclass`` or ``dict``."""
    parallelism: int = 1
    """The number of subtasks or workers, as interpreted by the program."""
    mode: str = ""
    """The set-up of the contestant, or the variant of the job."""

    @property
    def total(self) -> int:
        """The number of records of the whole run."""
        return self.records * (self.warm_up + self.batches)

    def arguments(self) -> list[str]:
        """Format the task as command-line arguments, for programs in every language."""
        return [text for name, value in asdict(self).items() for text in (f"--{name}", str(value))]

    @staticmethod
    def parse(arguments: Sequence[str]) -> Task:
        """Parse the result of ``arguments``."""
        parser = argparse.ArgumentParser()
        for part in fields(Task):
            parser.add_argument(f"--{part.name}", type=str if part.type == "str" else int)
        return Task(**vars(parser.parse_args(arguments)))


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task."""

    seconds: list[float]
    """The seconds of each measured batch."""
    results: int
    """The number of results of the whole run, including warm-up."""
    checksum: int = 0
    """The sum over all results of a number defined by the job; 0 if there is none."""
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of the contestant's packages."""

    def write(self, file: Path) -> None:
        """Write the outcome for the process that started the program."""
        file.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(file: Path) -> Outcome:
        """Read the outcome of a program."""
        content: dict[str, Any] = json.loads(file.read_text())
        return Outcome(**content)


class Notes:
    """A folder to which the functions of an engine write their progress, from any process."""

    def __init__(self, folder: str) -> None:
        self._times = Path(folder, "times")
        self._results = Path(folder, "results")

    def passed(self, batch: int) -> None:
        """A subtask of the first function has forwarded its records of the first ``batch`` batches."""
        self._append(self._times, batch, time.time())

    def add_totals(self, results: int, checksum: int) -> None:
        """Write the totals of a subtask of the last function."""
        self._append(self._results, results, checksum)

    def outcome(self, task: Task, versions: dict[str, str]) -> Outcome:
        """Return the outcome of the whole run. A batch ends when the last subtask has forwarded it."""
        ends: dict[int, float] = {}
        for line in self._times.read_text().splitlines():
            batch, moment = line.split()
            ends[int(batch)] = max(float(moment), ends.get(int(batch), 0))
        measured = range(task.warm_up, task.warm_up + task.batches)
        totals = [line.split() for line in self._results.read_text().splitlines()]
        return Outcome(
            [ends[batch + 1] - ends[batch] for batch in measured],
            sum(int(results) for results, _ in totals),
            sum(int(checksum) for _, checksum in totals),
            versions,
        )

    def _append(self, file: Path, *words: float) -> None:
        with file.open("a") as lines:  # appending a short line is atomic
            lines.write(" ".join(map(str, words)) + "\n")
