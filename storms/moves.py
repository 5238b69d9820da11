"""Moves: SIGKILL for a job while it moves from the local runtime to Spark and back, with a savepoint.

A *life* is one job from an empty folder to its end, which is moved again and again: it is stopped with a savepoint,
from which the other runtime starts with a new checkpoint. A move is killed while the savepoint is taken, or at a point
of the start and of the first micro-batch after it, and tried again. The final content of files, Kafka and PostgreSQL is
compared with an oracle in plain Python.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.common.report import Report
from components.server import MissingComponentError
from storms.common import kill_points
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.kill_points import Kill
from storms.common.outputs import differences
from storms.common.processes import Gate, JobOverError, JobProcess
from storms.common.results import Result, Results
from storms.common.servers import ServerPair
from storms.common.text import last_error, one_line
from storms.common.upgrade_phases import PHASES, Scene, phase_reached
from storms.jobs.upgraded import GATES, Outputs, Program, Script
from storms.upgrades import opens, phases_of

__all__ = ("EQUAL", "Life", "describe", "draw", "main", "phases")

NAME = "moves"
SHORT = {"kills": 2, "per_life": 2, "records": 1_000, "no_servers": True}
EQUAL = "equal"
_LAUNCHERS = {"local": "storms.common.launch_locally", "spark": "storms.common.launch"}
_TAKEN, *_STARTED = kill_points.MOVES


@dataclass(frozen=True)
class Life(Result):
    """One job from its beginning to its end. ``kills``: the runtime and the phase of each."""

    output: str
    kills: list[list[str]] = field(default_factory=list)
    moves: int = 0
    too_late: int = 0
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if records were lost or duplicated, or a job failed."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--kills", type=int, default=34, help="number of kills (34)")
    add("--per-life", type=int, default=6, help="kills per life (6)")
    add("--records", type=int, default=6_000, help="records of a split (6,000)")
    add("--no-servers", action="store_true", help="without Kafka and PostgreSQL")
    options = parser.parse(arguments, SHORT)
    lives = Results(options.results, NAME, Life, again=options.again)
    with ExitStack() as stack:
        run_lives(lives, options, stack)
    report = describe([*lives], options)
    report.publish(options.results)
    return int(any(life.output != EQUAL for life in lives))


def run_lives(lives: Results[Life], options: argparse.Namespace, stack: ExitStack) -> None:
    """Run lives until there are enough kills or the time limit is reached."""
    servers = None
    if not options.no_servers:
        try:
            servers = ServerPair(stack)()
        except MissingComponentError as error:
            print(f"Without Kafka and PostgreSQL: {error}", file=sys.stderr)
    deadline = Deadline(options.limit)
    number = sum(1 for _ in lives)
    most = number + 2 * -(-options.kills // options.per_life)  # some kills are too late
    while number < most and not deadline.is_over() and counts(lives).total() < options.kills:
        name = f"moves-{options.seed}-{number}"
        number += 1
        with scratch_folder() as folder:
            outputs = Outputs(folder, f"{name}-{os.getpid()}", options.records, servers)
            plan = draw(random.Random(name), counts(lives), options.per_life, servers=servers is not None)
            life = Moves(name, folder, outputs).live(plan)
        lives.add(life)
        print(f"{life.name}: {len(life.kills)} kills, {life.output} ({life.seconds:.0f} s)", file=sys.stderr)


def counts(lives: Results[Life] | Sequence[Life]) -> Counter[tuple[str, str]]:
    """The number of kills on each runtime in each phase."""
    return Counter((runtime, phase) for life in lives for runtime, phase in life.kills)


def phases(*, servers: bool = True) -> list[tuple[str, str]]:
    """The runtimes and phases in which a move is killed."""
    on_spark = (phase.name for kind in ("create", "restore") for phase in phases_of(kind, servers=servers))
    return [*(("local", phase) for phase in kill_points.MOVES), *(("spark", phase) for phase in on_spark)]


def draw(
    chance: random.Random, before: Counter[tuple[str, str]], kills: int, *, servers: bool
) -> list[tuple[str, str]]:
    """Draw the kills of a life: those that are rarest so far."""
    every = phases(servers=servers)
    chance.shuffle(every)
    return sorted(every, key=lambda one: before[one])[:kills]


class Moves:
    """One life of the job, which begins on the local runtime."""

    def __init__(self, name: str, folder: Path, outputs: Outputs) -> None:
        self._name = name
        self._folder = folder
        self._outputs = outputs
        self._chance = random.Random(name)
        self._runtime = "local"
        self._now = Script(Program(), "checkpoint-0", records=outputs.records)
        self._starts = 0
        self._moves = 0

    def live(self, plan: Sequence[tuple[str, str]]) -> Life:
        """Run the job to its end with the kills of ``plan``, and compare its output."""
        begun = time.monotonic()
        kills: list[list[str]] = []
        try:
            for runtime, phase in plan:
                if self._strike(runtime, phase):
                    kills.append([runtime, phase])
            if self._runtime == "spark":  # which would take longer for the rest
                self._move()
            self._run(self._now)
            output = differences(self._outputs.expected(), self._outputs.written()) or EQUAL
        except JobOverError as error:
            output = f"failed: {last_error(str(error)) or error}"
        seconds = round(time.monotonic() - begun, 1)
        return Life(self._name, output, kills, self._moves, len(plan) - len(kills), seconds)

    def _strike(self, runtime: str, phase: str) -> bool:
        """Kill a move in ``phase`` on ``runtime``, and complete it. Returns whether the kill was in time."""
        is_start = phase in _STARTED or phase in [one.name for one in PHASES["restore"]]
        if (self._runtime == runtime) == is_start:
            self._move()
        path = self._new("savepoint")
        if is_start:
            self._take(path)
            script = self._continued(path)
            self._turn()
            is_killed = self._killed(script, "restore", phase, Scene(self._folder, self._folder / script.checkpoint))
            self._now = script
            return is_killed
        script = replace(self._now, take="stopping", into=path)
        is_killed = self._killed(script, "create", phase, Scene(self._folder, self._folder / path))
        if not opens(self._folder / path):
            path = self._new("savepoint")
            self._take(path)
        self._now = self._continued(path)
        self._turn()
        return is_killed

    def _move(self) -> None:
        """Move the job without a kill. The other runtime has not started it when this returns."""
        path = self._new("savepoint")
        self._take(path)
        self._now = self._continued(path)
        self._turn()

    def _take(self, path: str) -> None:
        """Stop the job with a savepoint, after some micro-batches."""
        self._run(replace(self._now, take="stopping", into=path))

    def _turn(self) -> None:
        self._moves += 1
        self._runtime = "spark" if self._runtime == "local" else "local"

    def _continued(self, path: str) -> Script:
        return replace(self._now, checkpoint=self._new("checkpoint"), savepoint=path)

    def _new(self, kind: str) -> str:
        self._starts += 1
        return f"{kind}-{self._starts}"

    def _run(self, script: Script) -> None:
        with self._process(script) as process:
            process.start()
            process.finish()

    def _killed(self, script: Script, kind: str, phase: str, scene: Scene) -> bool:
        """Run ``script`` and kill it in ``phase``. Returns whether it had not passed it."""
        if self._runtime == "local":
            kill = Kill(str(self._folder), phase, self._chance.randrange(10**9))
            kill.give()
            with self._process(script) as process:
                process.start()
                if (code := process.wait()) not in (0, -signal.SIGKILL):
                    raise JobOverError(f"The job failed with exit code {code}: {process.log()}", code)
            return kill.phase_reached() == phase
        wanted = next(one for one in PHASES[kind] if one.name == phase)
        gate = Gate(self._folder, GATES[phase]) if phase in GATES else None
        if gate is not None:
            gate.shut()
        with self._process(script) as process:
            process.start()
            process.wait_until(lambda: wanted.reached(scene))
            process.kill()
        reached = phase_reached(PHASES[kind], scene)
        if gate is not None:
            gate.shut()  # forgets who waited
            gate.open()
        return reached is not None and reached.is_counted

    def _process(self, script: Script) -> JobProcess:
        logs = self._folder / self._new("process")
        logs.mkdir()
        launcher = ["-m", _LAUNCHERS[self._runtime], "storms.jobs.upgraded"]
        return JobProcess(logs, [*launcher, str(self._folder), script.encoded(), *self._outputs.arguments])


def describe(lives: Sequence[Life], options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Moves", conditions(NAME, options.seed))
    kills = counts(lives)
    report.table("Kills, by runtime and phase", ("runtime", "phase", "kills"), [(*one, kills[one]) for one in phases()])
    rows = [
        (life.name, life.moves, len(life.kills), life.too_late, life.seconds, one_line(life.output)) for life in lives
    ]
    report.table("Lives", ("life", "moves", "kills", "too late", "seconds", "output"), rows)
    report.at_least("kills", kills.total(), options.kills)
    report.at_most("lives with a different output", sum(life.output != EQUAL for life in lives), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import moves

    sys.exit(moves.main())
