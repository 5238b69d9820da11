"""Kills: SIGKILL for drivers, workers and source planners, at chosen points of a micro-batch.

A *life* is one job from an empty folder to its end. It is killed and restarted several times, and the final content of
its sinks is compared with an oracle in plain Python. The point of a kill is determined by the files that Spark and the
sinks have written, never by the clock, and checked afterwards: a kill that comes too late does not count.

* A driver is killed with its JVM and all workers, then the job is restarted.
* A worker is killed while it waits at a gate in a user function. The job continues.
* A planner is killed between micro-batches. The job fails, as documented, and is restarted.

With ``--runtime local`` a process kills itself at a random line of a phase: that of the job, or a worker process. A
loss of power ends all processes, and takes what they have not forced to the disk.

The results of lives are stored individually: the next call continues until the numbers of kills are reached.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import cycle, islice
from pathlib import Path

from benchmarks.common.report import Report
from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from components.server import MissingComponentError
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.kill_points import (
    FROM_OUTSIDE,
    MIGRATIONS,
    POINTS,
    WORKER_COPIES,
    WORKER_MIGRATIONS,
    WORKER_POINTS,
    WORKER_SINKS,
)
from storms.common.local_attack import LocalAttack
from storms.common.outputs import Output, differences
from storms.common.phases import BATCH_PHASES, START_PHASES, Phase, batch_phases
from storms.common.processes import Gate, JobOverError, JobProcess, children_of_session
from storms.common.results import Result, Results
from storms.common.servers import ServerPair
from storms.common.text import one_line
from storms.jobs import two_sources, upgraded

__all__ = ("JOBS", "Job", "Life", "live", "main")

NAME = "kills"
SMALL = "two-sources-small"
"""The job of the short form."""
SHORT = {"kills": 2, "others": 1, "jobs": [SMALL], "per_life": 3}
_SMALL_LOCALLY = {"jobs": ["local-two-sources-small"], "per_life": 8}
SHORT_LOCALLY = {"kills": 6, "losses": 2, **_SMALL_LOCALLY}
SHORT_WITH_WORKERS = {"kills": 1, "others": 5, "losses": 2, **_SMALL_LOCALLY}
EQUAL = "equal"
_PER_PHASE = {"driver": 10, "worker": 3}


@dataclass(frozen=True)
class Job:
    """A job under attack: a module like those of ``storms.jobs``, its arguments, and its launcher module."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    launcher: str = "storms.common.launch"

    @property
    def runtime(self) -> str:
        """The runtime on which it runs."""
        return "local" if self.launcher == _LOCAL else "spark"

    def with_processes(self, number: int) -> Job:
        """Return the job with ``number`` worker processes on the local runtime, which takes the place of the layout."""
        return replace(self, arguments=(str(number), *self.arguments[1:])) if self.runtime == "local" else self

    @property
    def can_change(self) -> bool:
        """Whether its program can change."""
        return self.module == upgraded.__name__

    @property
    def has_parallel_sinks(self) -> bool:
        """Whether it writes to Kafka and PostgreSQL."""
        return self.module != two_sources.__name__


_LOCAL = "storms.common.launch_locally"
JOBS = {
    job.name: job
    for job in (
        Job(SMALL, "storms.jobs.two_sources", ("blob", "1600")),
        Job("two-sources-blob", "storms.jobs.two_sources", ("blob",)),
        Job("two-sources-map", "storms.jobs.two_sources", ("map",)),
        Job("splits-joined-blob", "storms.jobs.splits_joined", ("blob",)),
        Job("splits-joined-map", "storms.jobs.splits_joined", ("map",)),
        Job("servers-blob", "storms.jobs.servers", ("blob",)),
        Job("servers-map", "storms.jobs.servers", ("map",)),
        Job("local-two-sources-small", "storms.jobs.two_sources", ("", "3000"), _LOCAL),
        Job("local-two-sources", "storms.jobs.two_sources", ("", "8000"), _LOCAL),
        Job("local-upgraded", "storms.jobs.upgraded", (), _LOCAL),
        Job("local-servers", "storms.jobs.servers", ("",), _LOCAL),
    )
}


@dataclass(frozen=True)
class Life(Result):
    """One job from its beginning to its end. ``kills``: victim and phase of the kills that count."""

    job: str
    output: str
    kills: list[list[str]] = field(default_factory=list)
    too_late: int = 0
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if records were lost or duplicated, or a job failed."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--runtime", choices=["spark", "local"], default="spark", help="runtime of the jobs (spark)")
    add("--processes", type=int, default=1, help="worker processes of local jobs (1)")
    add("--kills", type=int, default=200, help="number of driver kills (200)")
    add("--others", type=int, default=50, help="number of kills of workers and planners (50)")
    add("--losses", type=int, default=50, help="number of losses of power, locally (50)")
    add("--jobs", nargs="+", choices=[*JOBS], help="only these (all)")
    add("--per-life", type=int, default=10, help="kills per life (10)")
    known, _ = parser.parse_known_args(arguments)
    locally = SHORT_LOCALLY if known.processes == 1 else SHORT_WITH_WORKERS
    options = parser.parse(arguments, locally if known.runtime == "local" else SHORT)
    lives = Results(options.results, name_of(options), Life, again=options.again)
    with ExitStack() as stack:
        run_lives(lives, options, stack)
    report = describe([*lives], options)
    report.publish(options.results)
    return int(any(life.output != EQUAL for life in lives))


def name_of(options: argparse.Namespace) -> str:
    """Return the name of the report."""
    if options.runtime == "spark":
        return NAME
    return f"{NAME}-local" if options.processes == 1 else f"{NAME}-local-{options.processes}"


def other_victims(options: argparse.Namespace) -> tuple[str, ...]:
    """Return the victims beside drivers. A machine loses its power."""
    if options.runtime == "spark":
        return "worker", "planner"
    return ("machine",) if options.processes == 1 else ("worker", "machine")


def run_lives(lives: Results[Life], options: argparse.Namespace, stack: ExitStack) -> None:
    """Run jobs in turn until there are enough kills or the time limit is reached."""
    deadline = Deadline(options.limit)
    every = [job.name for job in JOBS.values() if job.runtime == options.runtime and not job.name.endswith("-small")]
    servers = ServerPair(stack)
    turns = {name: Turns(JOBS[name].with_processes(options.processes), servers) for name in options.jobs or every}
    number = sum(1 for _ in lives)
    wanted = sum(wanted for _, _, wanted in _numbers((), options))
    most = number + 3 * -(-wanted // options.per_life)  # some kills are too late
    while turns and number < most and not deadline.is_over() and not _is_enough(lives, options):
        name = [*turns][number % len(turns)]
        seed = options.seed * 10_000 + number
        number += 1
        try:
            plan = drawn(random.Random(seed), JOBS[name], lives, options)
            life = turns[name].live(f"{name}-{seed}", plan)
        except MissingComponentError as error:
            print(f"{name} is skipped: {error}", file=sys.stderr)
            del turns[name]
            continue
        lives.add(life)
        print(f"{life.name}: {len(life.kills)} kills, {life.output} ({life.seconds:.0f} s)", file=sys.stderr)


def _is_enough(lives: Results[Life], options: argparse.Namespace) -> bool:
    each = options.short or _fewest(lives, options) >= _PER_PHASE[_searched(options)]
    return each and all(found >= wanted for _, found, wanted in _numbers(lives, options))


def _numbers(lives: Iterable[Life], options: argparse.Namespace) -> Iterator[tuple[str, int, int]]:
    """Yield kinds of kills, their numbers so far, and the numbers that are wanted."""
    victims = Counter(victim for life in lives for victim, _ in life.kills)
    yield "kills of drivers", victims["driver"], options.kills
    if options.runtime == "spark":
        yield "other kills", victims["worker"] + victims["planner"], options.others
    else:
        for victim in other_victims(options):
            yield f"kills of {victim}s", victims[victim], _shares(options)[victim]


def _shares(options: argparse.Namespace) -> dict[str, int]:
    """Return how many kills of each victim of a local job are wanted."""
    wanted = {"driver": options.kills, "worker": options.others, "machine": options.losses}
    return {victim: wanted[victim] for victim in ("driver", *other_victims(options))}


def _searched(options: argparse.Namespace) -> str:
    """Return the victim that is to be killed in each of its phases."""
    return "driver" if options.processes == 1 else "worker"


def _fewest(lives: Iterable[Life], options: argparse.Namespace) -> int:
    victim = _searched(options)
    kills = Counter(phase for life in lives for killed, phase in life.kills if killed == victim)
    return min(kills[phase] for phase in _all_phases(options.runtime, victim))


def _all_phases(runtime: str = "spark", victim: str = "driver") -> list[str]:
    if runtime == "spark":
        return [*BATCH_PHASES, *(phase.name for phase in START_PHASES)]
    of_workers, of_machines = [*WORKER_POINTS, *FROM_OUTSIDE], [*POINTS, *WORKER_POINTS]
    return {"worker": of_workers, "machine": of_machines}.get(victim, [*POINTS])


def wanted_phases(lives: Iterable[Life], runtime: str = "spark", victim: str = "driver") -> list[str]:
    """All phases, ordered by the number of kills of ``victim`` so far."""
    counts = Counter(phase for life in lives for killed, phase in life.kills if killed == victim)
    return sorted(_all_phases(runtime, victim), key=lambda name: counts[name])


def drawn(chance: random.Random, job: Job, lives: Iterable[Life], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Draw the kills of one life of ``job``, in order: victim and phase."""
    if job.runtime == "spark":
        return draw(chance, wanted_phases(lives), options)
    impossible = {*WORKER_COPIES} if job.can_change else {*MIGRATIONS, *WORKER_MIGRATIONS}
    if not job.has_parallel_sinks:
        impossible |= {*WORKER_SINKS}
    if options.processes == 1:
        impossible |= {*WORKER_POINTS}
    plan = []
    shares = _shares(options)
    for victim, share in shares.items():
        phases = [phase for phase in wanted_phases(lives, job.runtime, victim) if phase not in impossible]
        number = max(1, round(options.per_life * share / sum(shares.values())))
        plan += [(victim, phase) for phase in islice(cycle(phases), number)]
    chance.shuffle(plan)
    return plan


def draw(chance: random.Random, phases: Sequence[str], options: argparse.Namespace) -> list[tuple[str, str]]:
    """Draw the kills of one life, in order: victim and phase. Phases of the first start come first."""
    others = max(1, round(options.per_life * options.others / (options.kills + options.others)))
    starts = [phase.name for phase in START_PHASES]
    chosen = phases[: options.per_life - others]
    if len(chosen) < options.per_life - others:
        chosen = [*chosen, *chance.choices(BATCH_PHASES, k=options.per_life - others - len(chosen))]
    at_start = [("driver", name) for name in starts if name in chosen]
    later = [("driver", name) for name in chosen if name not in starts]
    later += [(chance.choice(("worker", "worker", "planner")), "gate") for _ in range(others)]
    chance.shuffle(later)
    return [*at_start, *later]


class Turns:
    """The lives of one job. The first one starts the servers that the job requires."""

    def __init__(self, job: Job, servers: ServerPair) -> None:
        self._job = job
        self._servers = servers
        self._prepare: Callable[[str, Path], Prepared] | None = None

    def live(self, name: str, plan: Sequence[tuple[str, str]]) -> Life:
        """Run one life. Raises ``MissingComponentError`` if a server is not installed."""
        self._prepare = self._prepare or self._with_servers()
        with scratch_folder() as folder:
            return live(self._job, name, folder, plan, self._prepare(name, folder))

    def _with_servers(self) -> Callable[[str, Path], Prepared]:
        if self._job.module == upgraded.__name__:
            layout = self._job.arguments[0]
            return lambda name, folder: upgraded_prepared(name, folder, self._servers(), layout)
        if self._job.module != "storms.jobs.servers":
            return lambda name, folder: prepared(self._job)
        from storms.jobs import servers

        running = servers.Servers(*self._servers())

        def prepare(name: str, folder: Path) -> Prepared:
            arguments = running.prepare(name)
            written = lambda folder, first_batch: running.written(folder, arguments[2])  # noqa: E731
            return Prepared((*self._job.arguments, *arguments), servers.expected(), written)

        return prepare


@dataclass(frozen=True)
class Prepared:
    """The arguments of a job, its expected output, and a function that reads its actual output.

    ``changed`` returns the arguments of a changed program. None: the program never changes.
    """

    arguments: Sequence[str]
    expected: Output
    written: Callable[[Path, int], Output]
    changed: Callable[[random.Random], Sequence[str]] | None = None


def prepared(job: Job) -> Prepared:
    """Prepare a job without servers."""
    module = import_module(job.module)
    return Prepared(job.arguments, module.expected(*job.arguments), module.written)


def upgraded_prepared(name: str, folder: Path, servers: tuple[KafkaBroker, PostgresServer], layout: str) -> Prepared:
    """Prepare the job whose program changes."""
    outputs = upgraded.Outputs(folder, f"{name}-{os.getpid()}", upgraded.RECORDS, servers)

    def encoded(program: upgraded.Program) -> Sequence[str]:
        return upgraded.Script(program, "checkpoint").encoded(), *outputs.arguments

    def changed(chance: random.Random) -> Sequence[str]:
        programs.append(programs[-1].changed(chance))
        return encoded(programs[-1])

    programs = [upgraded.Program(layout=layout)]
    return Prepared(encoded(programs[0]), outputs.expected(), lambda folder, first_batch: outputs.written(), changed)


def live(job: Job, name: str, folder: Path, plan: Sequence[tuple[str, str]], ready: Prepared) -> Life:
    """Run ``job`` from its beginning to its end in ``folder`` with the kills of ``plan``, and compare its output."""
    begun = time.monotonic()
    counted: list[list[str]] = []
    with attack_on(job, folder, ready) as attack:
        try:
            for victim, phase in plan:
                if attack.strike(victim, phase, random.Random(f"{name} {len(counted)}")):
                    counted.append([victim, phase])
            attack.finish()
            output = differences(ready.expected, ready.written(folder, attack.first_batch)) or EQUAL
        except JobOverError as error:
            output = f"failed: {error}"
    return Life(name, job.name, output, counted, len(plan) - len(counted), round(time.monotonic() - begun, 1))


@contextmanager
def attack_on(job: Job, folder: Path, ready: Prepared) -> Iterator[Attack | LocalAttack]:
    """Begin the kills of one life."""
    launcher = ["-m", job.launcher, job.module]
    if job.runtime == "local":
        yield LocalAttack(folder, launcher, ready.arguments, ready.changed)
        return
    module = import_module(job.module)
    phases = {phase.name: phase for phase in START_PHASES} | batch_phases(module.SINKS)
    with JobProcess(folder, [*launcher, str(folder), *ready.arguments]) as process:
        yield Attack(process, phases, module.GATES)


class Attack:
    """The kills of one job."""

    def __init__(self, process: JobProcess, phases: dict[str, Phase], gates: Sequence[str]) -> None:
        self._process = process
        self._phases = phases
        self._gates = gates
        self._is_running = False
        self.first_batch = 0
        """The first micro-batch of the last run."""

    def start_if_over(self) -> None:
        """Start the job unless it runs."""
        if not self._is_running:
            self.first_batch = self._process.batches("commits")
            self._process.start()
            self._is_running = True

    def finish(self) -> None:
        """Run the job to its end."""
        self.start_if_over()
        self._process.finish()

    def strike(self, victim: str, phase: str, chance: random.Random) -> bool:
        """Kill ``victim`` when the job has reached ``phase``. Returns whether the kill was in time."""
        try:
            if victim == "driver":
                return self._kill_driver(self._phases[phase], chance)
            self.start_if_over()
            return self._kill_worker(chance) if victim == "worker" else self._kill_planner()
        except JobOverError as error:
            self._is_running = False
            if error.code != 0:
                raise
            return False  # the job ended before it reached the phase

    def _kill_driver(self, phase: Phase, chance: random.Random) -> bool:
        process, at_start = self._process, phase in START_PHASES
        # Skip the first micro-batch after a start, which may be a repeated one.
        batch = 0 if at_start else process.batches("commits") + 1
        if phase.reached(process.folder, batch):
            return False
        self.start_if_over()
        process.wait_until(lambda: phase.reached(process.folder, batch))
        if phase.tail:
            time.sleep(chance.uniform(0, phase.tail))
        process.kill()
        self._is_running = False
        return not phase.before_commit or process.batches("commits") <= batch

    def _kill_worker(self, chance: random.Random) -> bool:
        gate = Gate(self._process.folder, chance.choice(self._gates))
        worker = self._process.run_to(gate)
        is_in_time = worker not in (0, self._process.pid)
        if is_in_time:
            os.kill(worker, signal.SIGKILL)
        gate.open()
        return is_in_time

    def _kill_planner(self) -> bool:
        process = self._process
        passed = process.batches("commits") + 1
        process.wait_until(lambda: process.batches("commits") >= passed)
        planners = [
            child for child, command in children_of_session(process.pid) if "python_streaming_source_runner" in command
        ]
        for planner in islice(planners, 1):
            os.kill(planner, signal.SIGKILL)
            process.wait()
            self._is_running = False
        return bool(planners)


def describe(lives: Sequence[Life], options: argparse.Namespace) -> Report:
    """Create the report."""
    runtime = options.runtime
    command = NAME if runtime == "spark" else f"{NAME} --runtime local --processes {options.processes}"
    report = Report(name_of(options), "Kills", conditions(command, options.seed))
    kills = Counter((victim, phase) for life in lives for victim, phase in life.kills)
    searched, victims = _searched(options), Counter(victim for life in lives for victim, _ in life.kills)
    by_phase = [(name, kills[searched, name]) for name in _all_phases(runtime, searched)]
    report.table(f"Kills of {searched}s, by phase", ("phase", "kills"), by_phase)
    others = [victim for victim in ("driver", *other_victims(options)) if victim != searched]
    report.table("Other kills", ("victim", "kills"), [(name, victims[name]) for name in others])
    rows = []
    for name in JOBS:
        if not (of_job := [life for life in lives if life.job == name]):
            continue
        equal = sum(life.output == EQUAL for life in of_job)
        rows.append((name, len(of_job), sum(len(life.kills) for life in of_job), equal, len(of_job) - equal))
    report.table("Lives, by job", ("job", "lives", "kills", "output equal", "not equal"), rows)
    if bad := [(life.name, one_line(life.output)) for life in lives if life.output != EQUAL]:
        report.table("Lost, duplicated or failed", ("life", "output"), bad)
    for name, found, wanted in _numbers(lives, options):
        report.at_least(name, found, wanted)
    report.at_least("kills in the phase with the fewest", _fewest(lives, options), _PER_PHASE[searched])
    report.at_most("lives with a different output", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import kills

    sys.exit(kills.main())
