"""Programs, and the settings to run them with: the same pipelines and expected results on every runtime."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from dsv2 import (
    Dsv2Error,
    ExecutionEnvironment,
    GlobalStream,
    KeyedPartitionStream,
    NonKeyedPartitionStream,
    RuntimeExecutionMode,
)
from dsv2.dead_letters import DeadLetters, StoredLetter
from dsv2.graph import Plan
from dsv2.jobs import JobProgress, OperatorProgress
from dsv2.jobs.handle import JobRuntime
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.streams import ConfiguredStream
from tests.conformance.counts import KeptPlan, miscounts
from tests.conformance.ended_watermarks import unended
from tests.conformance.timing import per_event

T = TypeVar("T")
_LETTERS = "letters"
Sources: TypeAlias = dict[tuple[str, int], ConfiguredStream[Any]]
AnyStream: TypeAlias = NonKeyedPartitionStream[T] | KeyedPartitionStream[Any, T] | GlobalStream[T]


@dataclass(frozen=True)
class Setting:
    """One way to run programs. ``batch`` is the number of records of each source in a micro-batch, and ``portions`` the
    number of micro-batches with records of each source. Without both, there is one."""

    parallelism: int
    batch: int | None = None
    mode: RuntimeExecutionMode = RuntimeExecutionMode.STREAMING
    seed: int = 0
    checks: bool = True
    """True if the local runtime makes its checks."""
    portions: int | None = None
    maps: bool = False
    """True if Spark keeps pages of keyed state in maps."""

    @property
    def needs_checkpoint(self) -> bool:
        """True if Spark keeps state between micro-batches."""
        return self.mode is RuntimeExecutionMode.STREAMING

    def records_per_batch(self, records: int) -> int | None:
        """Return the limit of a source with this number of ``records``."""
        return self.batch if self.portions is None else max(1, math.ceil(records / self.portions))

    def __str__(self) -> str:
        cut = f" by {self.batch}" if self.batch else f" in {self.portions}" if self.portions else ""
        unchecked = "" if self.checks else " without checks"
        maps = " in maps" if self.maps else ""
        return f"p{self.parallelism} {self.mode.value}{cut}{unchecked}{maps} seed {self.seed}"


# Locally, a restart after each micro-batch takes most of the time, and more with more subtasks and micro-batches. These
# cover different paths: one channel; several channels; several micro-batches without and with restarts; batch mode.
LOCAL_SETTINGS = [
    Setting(1),
    Setting(2, seed=1, checks=False),
    Setting(4, 5, seed=4, checks=False),
    Setting(2, mode=RuntimeExecutionMode.BATCH, seed=5),
    Setting(2, 3, seed=3),
]
# The same paths with other numbers of subtasks and records.
NIGHTLY_LOCAL_SETTINGS = [
    Setting(2),
    Setting(4),
    *(Setting(p, seed=1, checks=False) for p in (1, 4)),
    *(Setting(p, 5, seed=4, checks=False) for p in (1, 2)),
    *(Setting(p, mode=RuntimeExecutionMode.BATCH, seed=5) for p in (1, 4)),
    *(Setting(p, 1, seed=2) for p in (1, 2, 4)),
    *(Setting(p, 3, seed=3) for p in (1, 4)),
]
# On Spark each setting takes minutes, most of them for subtasks in micro-batches. Each of these covers a path that no
# other does: several subtasks in one task, which take turns; pages of state in a map; batch mode without a state store.
SPARK_SETTINGS = [
    Setting(3, portions=3),
    Setting(2, portions=3, maps=True),
    Setting(2, mode=RuntimeExecutionMode.BATCH),
]
# The same paths with other numbers: one micro-batch, a task for each subtask, one channel, more subtasks.
# tests/property/test_random_dags.py also checks that one channel keeps the order of all records on Spark.
NIGHTLY_SPARK_SETTINGS = [
    Setting(1),
    Setting(1, 5),
    Setting(2, 4),
    Setting(1, mode=RuntimeExecutionMode.BATCH),
    Setting(4, mode=RuntimeExecutionMode.BATCH),
]
CONNECT_SETTING = Setting(2, mode=RuntimeExecutionMode.BATCH)
# Several micro-batches, so that each program repeats what the server's process does after one.
STREAMING_CONNECT_SETTING = Setting(2, portions=2)


class Pipeline:
    """The interface with which programs build."""

    def __init__(
        self, program: Program, env: ExecutionEnvironment, setting: Setting, folder: Path, sources: Sources
    ) -> None:
        self.env = env
        self.parallelism = setting.parallelism
        self.mode = setting.mode
        self.folder = folder / program.name
        self.sinks: dict[str, CollectSink[Any]] = {}
        self.skips: dict[str, list[tuple[int | str, int | str]]] = {}  # skip_records
        self._program = program
        self.records_per_batch = setting.records_per_batch
        self._sources = sources
        self._uses: Counter[str] = Counter()
        self.folder.mkdir()

    def source(self, items: Collection[T], parallelism: int | None = None) -> ConfiguredStream[T]:
        """Return a stream of ``items``, divided into micro-batches by the setting.

        Programs that run side by side share one source, because each source costs about a second on Spark. Within a
        program every call returns its own source.
        """
        parallelism = parallelism or self.parallelism
        use = f"{items!r} {parallelism}"
        self._uses[use] += 1
        place = use, self._uses[use]
        if place not in self._sources:
            source = CollectionSource(items, records_per_batch=self.records_per_batch(len(items)))
            self._sources[place] = self.env.from_source(source).with_parallelism(parallelism)
        return self._sources[place]

    def timed(self, items: Collection[Any], time_of: Callable[[Any], int]) -> Any:
        """Return a stream of ``items`` through one channel, with their times and a watermark after each."""
        return self.source(items, 1).process(per_event(time_of)).with_parallelism(1)

    def collect(self, stream: AnyStream[Any], name: str = "out") -> None:
        """Make the records of ``stream`` a result of the run."""
        self.sinks[name] = CollectSink()
        stream.to_sink(self.sinks[name])

    def uid(self, name: str) -> str:
        """Return a uid that no other program has. ``Run.progress`` finds the operator by ``name``."""
        return f"{self._program.name}/{name}"


@dataclass(frozen=True)
class Run:
    """The results of one program."""

    program: str
    setting: Setting
    results: Mapping[str, list[Any]]
    operators: Mapping[str, OperatorProgress]
    folder: Path
    miscounts: Sequence[str]
    unended: Sequence[str]

    @property
    def parallelism(self) -> int:
        """The parallelism of operators that do not set their own."""
        return self.setting.parallelism

    def out(self, name: str = "out") -> list[Any]:
        """The records of the sink ``name``, in order."""
        return self.results[name]

    def expect(self, *expected: Any, name: str = "out") -> None:
        """Check for these records, in this order if the parallelism is 1 (for inputs with one channel)."""
        if self.parallelism == 1:
            assert self.out(name) == list(expected)
        self.expect_all(*expected, name=name)

    def expect_all(self, *expected: Any, name: str = "out") -> None:
        """Check for these records, in any order."""
        assert alike(self.out(name), expected)

    def expect_channel_order(self, number: Callable[[Any], int], name: str = "out") -> None:
        """Check that numbers of one source subtask (every n-th) that took the same path kept their order."""
        for lane in range(self.parallelism):
            numbers = [number(record) for record in self.out(name) if number(record) % self.parallelism == lane]
            assert numbers == sorted(numbers)

    def grouped(self, key: Callable[[Any], Hashable], name: str = "out") -> dict[Any, list[Any]]:
        """The records of the sink ``name`` by ``key``, in order."""
        groups: dict[Any, list[Any]] = {}
        for record in self.out(name):
            groups.setdefault(key(record), []).append(record)
        return groups

    def expect_counts(self) -> None:
        """Check that the counts in the progress of the job add up, and are those of the sinks."""
        assert not self.miscounts, "; ".join(self.miscounts)

    def expect_ended_watermarks(self) -> None:
        """Check that nothing holds a watermark back, because all input has ended."""
        assert self.unended == []

    def letters(self, name: str) -> list[StoredLetter]:
        """The dead letters of the operator with ``Pipeline.uid(name)`` that nothing reads."""
        letters = DeadLetters.open(self.folder.parent / _LETTERS).letters
        return [letter for letter in letters if letter.operator == f"{self.program}/{name}"]

    def progress(self, name: str) -> OperatorProgress:
        """Progress of the operator with ``Pipeline.uid(name)``."""
        return self.operators[f"{self.program}/{name}"]


def alike(found: Iterable[Any], expected: Iterable[Any]) -> bool:
    """Return whether both have the same elements equally often. Also for records that cannot be hashed."""
    return Counter(map(repr, found)) == Counter(map(repr, expected))


class Program(ABC):
    """A pipeline, and the facts that hold however it is run. It has no state because it is run many times."""

    @property
    def name(self) -> str:
        """Names the program in test ids and uids."""
        return type(self).__name__

    @abstractmethod
    def build(self, p: Pipeline) -> None:
        """Build the pipeline."""

    @abstractmethod
    def check(self, run: Run) -> None:
        """Assert the expected results."""


def run_programs(
    programs: Sequence[Program], setting: Setting, runtime: JobRuntime, folder: Path, checkpoint: str | None = None
) -> dict[str, Run]:
    """Run ``programs`` side by side in one job."""
    env, kept = ExecutionEnvironment.get_instance(runtime), KeptPlan()
    env.add_job_listener(kept)
    env.set_parallelism(setting.parallelism)
    env.set_execution_mode(setting.mode)
    sources: Sources = {}
    pipelines = {program.name: Pipeline(program, env, setting, folder, sources) for program in programs}
    nodes = env._builder.nodes
    for program in programs:
        first = len(nodes)
        program.build(pipelines[program.name])
        for number, node in enumerate(nodes[first:]):  # programs may contain identical operators
            node.uid = node.uid or f"{program.name}/operator {number}"
    skips = {uid: places for pipeline in pipelines.values() for uid, places in pipeline.skips.items()}
    result = env.execute(
        "conformance", checkpoint_location=checkpoint, skip_records=skips, dead_letters=folder / _LETTERS
    )
    counts = miscounts(kept.plan, result.progress)
    open_watermarks = unended(kept.plan, result.progress)
    return {
        name: Run(
            name,
            setting,
            {sink_name: sink.results for sink_name, sink in pipeline.sinks.items()},
            result.progress.operators,
            pipeline.folder,
            [*counts, *_miscounts_of_sinks(pipeline, kept.plan, result.progress)],
            open_watermarks,
        )
        for name, pipeline in pipelines.items()
    }


class SharedRuns:
    """The runs of all programs, which share one job in each setting. The first call for a setting runs them.

    ``run``: Runs the programs in a setting.
    """

    def __init__(self, run: Callable[[Setting], dict[str, Run]]) -> None:
        self._run = run
        self._done: dict[Setting, dict[str, Run] | Dsv2Error] = {}

    def __call__(self, setting: Setting) -> dict[str, Run]:
        if setting not in self._done:
            try:
                self._done[setting] = self._run(setting)
            except Dsv2Error as error:
                self._done[setting] = error  # every program of the setting fails with it, and is not run again
        result = self._done[setting]
        if isinstance(result, Dsv2Error):
            pytest.fail(f"The job of all programs failed: {result}", pytrace=False)
        return result


def _miscounts_of_sinks(pipeline: Pipeline, plan: Plan, progress: JobProgress) -> list[str]:
    sinks = {id(operator.body): operator for operator in plan.operators}
    received = {
        name: (progress.operators[sinks[id(sink)].uid].records_in, len(sink.results))
        for name, sink in pipeline.sinks.items()
        if id(sink) in sinks
    }
    return [f"sink {name!r}: {count} is not {actual}" for name, (count, actual) in received.items() if count != actual]
