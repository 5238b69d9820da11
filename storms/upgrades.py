"""Upgrades: SIGKILL for the driver while it takes a savepoint, starts from one, or migrates its checkpoint.

A *life* is one job from an empty folder to its end, which is changed again and again: parallelism, partitions, state
layout, operators, the class of records in state. Every change is interrupted by a kill, in a phase that is determined
by the files of savepoints, checkpoints and sinks, never by the clock. The phase that counts is the one that the files
show after the kill. The final content of files, Kafka and PostgreSQL is compared with an oracle in plain Python.

After a kill the same program continues; before the first micro-batch has written, the program before or a further one
may also continue. A savepoint that was interrupted must be refused. In each life the driver of an old program comes
back late, and must end before it writes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from pathlib import Path

from benchmarks.common.report import Report
from components.server import MissingComponentError
from dsv2 import Dsv2Error
from dsv2.savepoint import Savepoint
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.outputs import differences
from storms.common.processes import Gate, JobOverError, JobProcess, children_of_session
from storms.common.results import Result, Results
from storms.common.servers import broker_and_database
from storms.common.text import last_error, one_line
from storms.common.upgrade_phases import PHASES, Phase, Scene, attempt, first_batch, phase_reached
from storms.jobs.upgraded import GATES, RECORDS, Outputs, Program, Script

__all__ = (
    "KINDS",
    "LATE",
    "Life",
    "Upgrades",
    "describe",
    "draw",
    "is_sound",
    "main",
    "opens",
    "outcome_of_late",
    "phases_of",
)

NAME = "upgrades"
SHORT = {"kills": 2, "per_life": 2, "records": 600, "no_servers": True}
EQUAL = "equal"
KINDS = ("create", "migrate", "restore")
_ORDER = ("create", "migrate", "restore", "create", "migrate", "restore", "create", "migrate", "migrate", "restore")
LATE = ("resumed after a migration", "resumed after a savepoint", "restarted after a savepoint")
"""The ways in which the driver of an old program comes back."""
_STRIDE = 17  # from a phase to the next one in turn; it has no factor in common with their numbers
_TAKEN_OVER = "is written by a job that started from a savepoint of this one"
_FENCED = {
    LATE[0]: ("has lost its lease",),
    LATE[1]: (_TAKEN_OVER,),
    LATE[2]: (_TAKEN_OVER, "already has micro-batch"),
}
_INTERVAL = 4  # seconds between the micro-batches of a driver that is suspended between two of them


@dataclass(frozen=True)
class Life(Result):
    """One job from its beginning to its end. ``kills``: kind and phase. ``late``: what became of late drivers."""

    output: str
    kills: list[list[str]] = field(default_factory=list)
    late: list[list[str]] = field(default_factory=list)
    too_late: int = 0
    changes: int = 0
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if records were lost or duplicated, or a job failed."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--kills", type=int, default=40, help="number of kills (40)")
    add("--per-life", type=int, default=10, help="kills per life (10)")
    add("--records", type=int, default=RECORDS, help=f"records of a split ({RECORDS:,})")
    add("--no-servers", action="store_true", help="without Kafka and PostgreSQL")
    options = parser.parse(arguments, SHORT)
    lives = Results(options.results, NAME, Life, again=options.again)
    with ExitStack() as stack:
        run_lives(lives, options, stack)
    report = describe([*lives], options)
    report.publish(options.results)
    return int(not all(map(is_sound, lives)))


def run_lives(lives: Results[Life], options: argparse.Namespace, stack: ExitStack) -> None:
    """Run lives until there are enough kills or the time limit is reached."""
    servers = None
    if not options.no_servers:
        try:
            servers = stack.enter_context(broker_and_database(stack.enter_context(scratch_folder())))
        except MissingComponentError as error:
            print(f"Without Kafka and PostgreSQL: {error}", file=sys.stderr)
    deadline = Deadline(options.limit)
    number = sum(1 for _ in lives)
    most = number + 2 * -(-options.kills // options.per_life)  # some kills are too late
    while number < most and not deadline.is_over() and counts(lives).total() < options.kills:
        name = f"upgrades-{options.seed}-{number}"
        plan = draw(counts(lives), options.per_life, servers=servers is not None)
        late = None if options.short else LATE[number % len(LATE)]
        number += 1
        with scratch_folder() as folder:
            outputs = Outputs(folder, f"{name}-{os.getpid()}", options.records, servers)
            life = Upgrades(name, folder, outputs).live(plan, late)
        lives.add(life)
        print(
            f"{life.name}: {len(life.kills)} kills, {life.output}, {life.late} ({life.seconds:.0f} s)", file=sys.stderr
        )


def is_sound(life: Life) -> bool:
    """Return whether nothing was lost or duplicated, and late drivers were fenced off."""
    return life.output == EQUAL and all(outcome == "fenced" for _, outcome in life.late)


def counts(lives: Results[Life] | Sequence[Life]) -> Counter[tuple[str, str]]:
    """The number of kills of each kind and phase."""
    return Counter((kind, phase) for life in lives for kind, phase in life.kills)


def phases_of(kind: str, *, servers: bool = True) -> list[Phase]:
    """The phases in which a kill counts."""
    return [phase for phase in PHASES[kind] if phase.is_counted and (servers or phase.name not in GATES)]


def draw(before: Counter[tuple[str, str]], kills: int, *, servers: bool) -> list[tuple[str, str]]:
    """Draw the kills of a life: kind and phase. ``before``: Earlier kills; the phases of each kind take turns."""
    of_kind: Counter[str] = Counter()
    for (kind, _), number in before.items():
        of_kind[kind] += number
    drawn = []
    for kind in islice(cycle(_ORDER), kills):
        phases = phases_of(kind, servers=servers)
        drawn.append((kind, phases[of_kind[kind] * _STRIDE % len(phases)].name))
        of_kind[kind] += 1
    return drawn


class Upgrades:
    """One life of the job, and its current program.

    Args:
        name: The name of the life, which seeds its random choices.
        folder: The folder of the life.
        outputs: The sinks.
        launcher: The arguments of the Python interpreter before the folder, the script and ``outputs.arguments``.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        outputs: Outputs,
        launcher: Sequence[str] = ("-m", "storms.common.launch", "storms.jobs.upgraded"),
    ) -> None:
        self._name = name
        self._folder = folder
        self._outputs = outputs
        self._launcher = launcher
        self._chance = random.Random(name)
        self._starts = 0
        self._savepoints = 0
        self._checkpoints = 0
        self._changes = 0
        self._now = Script(Program(), "checkpoint-0", records=outputs.records)

    def live(self, plan: Sequence[tuple[str, str]], late: str | None) -> Life:
        """Run the job to its end with the kills of ``plan``, and compare its output. ``late``: one of ``LATE``."""
        begun = time.monotonic()
        kills: list[list[str]] = []
        fenced: list[list[str]] = []
        try:
            for number, (kind, phase) in enumerate(plan):
                if number == len(plan) // 2 and late is not None:
                    fenced.append([late, self._late(late)])
                if (reached := self._strike(kind, phase)) is not None:
                    kills.append([kind, reached])
            with self._process(self._now) as process:
                process.finish()
            output = differences(self._outputs.expected(), self._outputs.written()) or EQUAL
        except JobOverError as error:
            output = f"failed: {last_error(str(error)) or error}"
        seconds = round(time.monotonic() - begun, 1)
        return Life(self._name, output, kills, fenced, len(plan) - len(kills), self._changes, seconds)

    def _strike(self, kind: str, phase: str) -> str | None:
        """Kill the driver in ``phase``. Returns the phase that it was in; None if the kill was too late."""
        strike: dict[str, Callable[[str], str | None]] = {
            "create": self._create,
            "migrate": self._migrate,
            "restore": self._restore,
        }
        try:
            return strike[kind](phase)
        except JobOverError as error:
            if error.code != 0:
                raise
            return None  # the job ended before it reached the phase

    def _create(self, phase: str) -> str | None:
        """Kill the driver while it takes a savepoint."""
        how = self._chance.choice(("stopping", "running", "offline") if self._is_settled() else ("stopping", "running"))
        path = self._new_savepoint()
        if how == "offline":
            script = replace(self._now, program=None, create=(self._now.checkpoint, path))
        else:
            script = replace(self._now, take=how, into=path)
        place = self._folder / path
        reached = self._kill_in(script, "create", phase, Scene(self._folder, place))
        if (place / "savepoint.json").exists() != opens(place):
            raise JobOverError(f"The savepoint that was killed in the phase {reached} is not what it should be.")
        return reached

    def _migrate(self, phase: str) -> str | None:
        """Kill the driver of a changed program that starts with the same checkpoint."""
        self._settle()
        before, changed = self._now, replace(self._now, program=self._changed())
        generations = _Generations(self._folder / self._now.checkpoint)
        following = generations.following
        newest = max(_numbers(generations.current / "offsets"))
        scene = Scene(self._folder, following, generations.current, newest, attempt(following))
        self._now = changed
        reached = self._kill_in(changed, "migrate", phase, scene)
        if self._is_settled() and not _numbers(following / "commits"):  # any program may continue
            further = replace(changed, program=self._changed())
            self._now = self._chance.choice((changed, changed, before, further))
        return reached

    def _restore(self, phase: str) -> str | None:
        """Kill the driver of a changed program that starts from a savepoint of the crashed job."""
        self._settle()
        script = self._from_savepoint()
        self._now = replace(script, create=None)
        return self._kill_in(script, "restore", phase, Scene(self._folder, self._folder / script.checkpoint))

    def _late(self, how: str) -> str:
        """Let the driver of an old program come back after a new one has written. Returns "fenced" or what it did."""
        self._settle()
        old = replace(self._now, interval=_INTERVAL)
        if how == LATE[2]:
            self._run_to_commit(self._from_savepoint())
            with self._process(old) as process:
                return outcome_of_late(how, process)
        with self._process(old) as process:
            self._suspend_between_micro_batches(process)
            after_migration = how == LATE[0]
            changed = replace(self._now, program=self._changed()) if after_migration else self._from_savepoint()
            self._run_to_commit(changed)
            _signal(process, signal.SIGCONT)
            return outcome_of_late(how, process)

    def _suspend_between_micro_batches(self, process: JobProcess) -> None:
        """Suspend a driver that has neither logged nor written anything of its next micro-batch."""
        generations = _Generations(self._folder / self._now.checkpoint)
        while True:
            seen = generations.commits()
            process.wait_until(lambda seen=seen: bool(generations.commits() - seen))  # type: ignore[misc]
            _signal(process, signal.SIGSTOP)
            place = generations.current
            if max(_numbers(place / "offsets")) == max(_numbers(place / "commits")):
                return
            _signal(process, signal.SIGCONT)

    def _is_settled(self) -> bool:
        """Return whether any program may continue: no files have been written of a micro-batch that is not complete."""
        place = _Generations(self._folder / self._now.checkpoint).current
        commits = _numbers(place / "commits")
        attempts = self._folder.glob("*/_dsv2/data/*-*")
        written = max((int(attempt.name.partition("-")[0]) for attempt in attempts), default=-1)
        return bool(commits) and written <= first_batch(place) + max(commits)

    def _settle(self) -> None:
        """Run the current program until any other may continue."""
        while not self._is_settled():
            self._run_to_commit(self._now)

    def _run_to_commit(self, script: Script) -> None:
        """Run ``script`` until it has completed a micro-batch. From then on it is the current one."""
        generations = _Generations(self._folder / script.checkpoint)
        seen = generations.commits()
        with self._process(script) as process:
            process.wait_until(lambda: bool(generations.commits() - seen))
        self._now = replace(script, create=None)

    def _kill_in(self, script: Script, kind: str, phase: str, scene: Scene) -> str | None:
        """Run ``script`` and kill it in ``phase``. Returns the name of the phase that it was in, if that counts."""
        wanted = next(one for one in PHASES[kind] if one.name == phase)
        gate = Gate(self._folder, GATES[phase]) if phase in GATES else None
        if gate is not None:
            gate.shut()
        with self._process(script) as process:
            process.wait_until(lambda: wanted.reached(scene))
            process.kill()
        reached = phase_reached(PHASES[kind], scene)
        if gate is not None:
            gate.shut()  # forgets who waited
            gate.open()
        return reached.name if reached is not None and reached.is_counted else None

    def _process(self, script: Script) -> JobProcess:
        self._starts += 1
        logs = self._folder / f"process-{self._starts}"
        logs.mkdir()
        process = JobProcess(logs, [*self._launcher, str(self._folder), script.encoded(), *self._outputs.arguments])
        process.start()
        return process

    def _from_savepoint(self) -> Script:
        """A changed program that starts in a new checkpoint, from a savepoint that the same process creates before."""
        path = self._new_savepoint()
        self._checkpoints += 1
        created = (self._now.checkpoint, path)
        checkpoint = f"checkpoint-{self._checkpoints}"
        return replace(self._now, program=self._changed(), checkpoint=checkpoint, savepoint=path, create=created)

    def _new_savepoint(self) -> str:
        self._savepoints += 1
        return f"savepoint-{self._savepoints}"

    def _changed(self) -> Program:
        """Another program, which cannot continue in the generation of the current one."""
        assert self._now.program is not None
        self._changes += 1
        return self._now.program.changed(self._chance)


class _Generations:
    """The generations of a checkpoint."""

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint

    @property
    def _number(self) -> int:
        numbers = _numbers(self._checkpoint / "generations")
        return max((number for number in numbers if _numbers(self._of(number) / "commits")), default=0)

    @property
    def current(self) -> Path:
        """The last one with a complete micro-batch."""
        return self._of(self._number)

    @property
    def following(self) -> Path:
        """The one after it."""
        return self._of(self._number + 1)

    def _of(self, number: int) -> Path:
        return self._checkpoint / f"generations/{number}" if number else self._checkpoint

    def commits(self) -> set[Path]:
        """The complete micro-batches of all generations."""
        return {*self._checkpoint.glob("commits/[0-9]*"), *self._checkpoint.glob("generations/*/commits/[0-9]*")}


def _numbers(folder: Path) -> list[int]:
    """The names of the files in ``folder`` that are numbers."""
    return [int(file.name) for file in folder.glob("[0-9]*") if file.name.isdigit()]


def opens(savepoint: Path) -> bool:
    """Return whether a savepoint can be used."""
    try:
        Savepoint.open(savepoint).verify()
    except Dsv2Error:
        return False
    return True


def _signal(process: JobProcess, number: signal.Signals) -> None:
    """Send a signal to all processes of a job."""
    for child, _ in children_of_session(process.pid):
        os.kill(child, number)


def outcome_of_late(how: str, process: JobProcess) -> str:
    """Return the fate of a late driver."""
    code, log = process.wait(), process.log()
    if code != 0 and any(words in log for words in _FENCED[how]):
        return "fenced"
    return f"ended with exit code {code}: {one_line(last_error(log))}"


def describe(lives: Sequence[Life], options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Upgrades", conditions(NAME, options.seed))
    kills = counts(lives)
    rows = [(kind, phase.name, kills[kind, phase.name]) for kind in KINDS for phase in phases_of(kind)]
    report.table("Kills of drivers, by kind of upgrade and phase", ("kind", "phase", "kills"), rows)
    late = Counter((how, one_line(outcome)) for life in lives for how, outcome in life.late)
    if late:
        rows_of_late = [(how, outcome, times) for (how, outcome), times in sorted(late.items())]
        report.table("Late drivers", ("driver of an old program", "outcome", "times"), rows_of_late)
    of_lives = [
        (life.name, life.changes, len(life.kills), life.too_late, life.seconds, one_line(life.output)) for life in lives
    ]
    report.table("Lives", ("life", "changes", "kills", "too late", "seconds", "output"), of_lives)
    report.at_least("kills", kills.total(), options.kills)
    report.at_most("lives with lost or duplicated records, or a late driver", sum(not is_sound(o) for o in lives), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import upgrades

    sys.exit(upgrades.main())
