"""Code shared by the PyFlink jobs: the environment, a source of numbers, a function that adds up, and the run.

The first word of the mode determines where functions run: in separate Python processes (``process``) or in Flink's
process (``thread``).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import DataStream, MapFunction, ProcessFunction, StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

from benchmarks.jobs.events import Events
from benchmarks.peers.protocol import Notes, Outcome, Task

__all__ = ("EVENT", "Clock", "Made", "Tally", "numbers", "run")

EVENT = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])


class Clock:
    """Records the ends of batches. The first function calls it for each number and at the end."""

    def __init__(self, task: Task, notes: Notes) -> None:
        self._task = task
        self._notes = notes

    def see(self, number: int) -> None:
        """Handle the arrival of ``number``."""
        if number % self._task.records == 0:
            self._notes.passed(number // self._task.records)

    def end(self) -> None:
        """Handle the end of input."""
        self.see(self._task.total)


class Made(MapFunction):
    """Creates the event of a number (see ``benchmarks.jobs.events``)."""

    def __init__(self, task: Task, notes: Notes) -> None:
        self.make = Events(task.keys, task.kind)
        self.clock = Clock(task, notes)

    def map(self, value: int) -> Any:
        self.clock.see(value)
        return self.make(value)

    def close(self) -> None:
        self.clock.end()


class Tally(ProcessFunction):
    """Adds up numbers and discards them."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._results = self._checksum = 0

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        self._results += 1
        self._checksum += value
        yield from ()

    def close(self) -> None:
        self._notes.add_totals(self._results, self._checksum)


def numbers(env: StreamExecutionEnvironment, count: int) -> DataStream:
    """A stream of ``count`` numbers, from 0 on."""
    return env.from_source(NumberSequenceSource(0, count - 1), WatermarkStrategy.no_watermarks(), "numbers")


def run(task: Task, build: Callable[[StreamExecutionEnvironment, Notes], DataStream]) -> Outcome:
    """Run the job that ``build`` creates to its end. Its results are ints."""
    config = Configuration()
    config.set_string("python.execution-mode", task.mode.split()[0])
    config.set_string("python.executable", sys.executable)
    config.set_string("python.client.executable", sys.executable)
    config.set_string("taskmanager.memory.task.heap.size", "2g")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(task.parallelism)
    with tempfile.TemporaryDirectory(prefix="dsv2-benchmark-") as folder:
        notes = Notes(folder)
        build(env, notes).process(Tally(notes), output_type=Types.LONG()).print()
        env.execute("benchmark")
        return notes.outcome(task, {"apache-flink": version("apache-flink")})
