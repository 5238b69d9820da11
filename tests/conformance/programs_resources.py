"""Programs with resources, which the subtasks of a process share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from dsv2 import Resource
from dsv2.functions import OneInputStreamProcessFunction
from tests.conformance.functions import NUMBERS, mod3
from tests.conformance.harness import Pipeline, Program, Run


class Model:
    """Notes in a file of its process when it is opened and closed. It cannot be pickled."""

    def __init__(self, folder: Path) -> None:
        self.process = os.getpid()
        self.file = (folder / f"{self.process}").open("a", encoding="utf-8")
        self.note("open")

    def note(self, event: str) -> None:
        """Add a line."""
        self.file.write(f"{event}\n")
        self.file.flush()

    def close(self) -> None:
        """Close the file."""
        self.note("close")
        self.file.close()


class Score(OneInputStreamProcessFunction[int, tuple[int, bool]]):
    """Emits each number, and whether the model was opened by this process."""

    def __init__(self, model: Resource[Model]) -> None:
        self.model = model

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect((record, self.model.get().process == os.getpid()))


class SharedResource(Program):
    """Two functions, in all of their subtasks and micro-batches, share a model in each process."""

    def build(self, p: Pipeline) -> None:
        model = Resource(partial(Model, p.folder), close=Model.close)
        source = p.source(NUMBERS)
        p.collect(source.process(Score(model)), "not keyed")
        p.collect(source.key_by(mod3).process(Score(model)), "keyed")

    def check(self, run: Run) -> None:
        for name in ("not keyed", "keyed"):
            run.expect_all(*((number, True) for number in NUMBERS), name=name)
        processes = list(_events(run.folder))
        assert processes
        for events in processes:  # it may have been closed and opened again, but is open once at any time
            assert all(event == ("open", "close")[number % 2] for number, event in enumerate(events))


class ResourceOfPlainFunction(Program):
    """A function of ``map``, which may be chained to the source, uses a resource."""

    def build(self, p: Pipeline) -> None:
        factor = Resource(_factor)
        p.collect(p.source(NUMBERS).map(lambda number: number * factor.get()))

    def check(self, run: Run) -> None:
        run.expect_all(*(number * 7 for number in NUMBERS))


def _factor() -> int:
    return 7


def _events(folder: Path) -> Iterator[list[str]]:
    return (file.read_text(encoding="utf-8").split() for file in folder.iterdir())


PROGRAMS = (SharedResource(), ResourceOfPlainFunction())
