"""Cluster: SIGKILL for executors and workers of a Spark cluster, in the middle of micro-batches.

A *life* is one job on a standalone cluster, from an empty folder to its end. It is suspended at a gate in a user
function. Then the executor whose task waits there is killed, or its worker with its executor, as if a machine failed. A
new worker takes the place of one that was killed. The driver survives, so the job must continue by itself. The final
content of its sinks is compared with an oracle in plain Python.

The results of lives are stored individually: the next call continues until the numbers of kills are reached.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from benchmarks.common.report import Report
from components.spark_cluster import SparkCluster
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.outputs import differences
from storms.common.processes import Gate, JobOverError, JobProcess
from storms.common.results import Results
from storms.common.text import last_error, one_line
from storms.kills import EQUAL, JOBS, SMALL, Job, Life, prepared

__all__ = ("VICTIMS", "executor_of", "main", "worker_port")

NAME = "cluster"
VICTIMS = ("executor", "worker")
SHORT = {"executors": 1, "workers": 1, "per_life": 2, "job": SMALL}
_EXECUTOR = "CoarseGrainedExecutorBackend"
_WORKER = re.compile(r"spark://Worker@[^: ]+:(\d+)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if records were lost or duplicated, or a job failed."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--executors", type=int, default=10, help="number of executor kills (10)")
    add("--workers", type=int, default=10, help="number of worker kills (10)")
    add("--job", choices=[*JOBS], default="two-sources-blob", help="the job (two-sources-blob)")
    add("--per-life", type=int, default=6, help="kills per life (6)")
    options = parser.parse(arguments, SHORT)
    lives = Results(options.results, NAME, Life, again=options.again)
    with scratch_folder() as folder, SparkCluster(folder) as cluster:
        run_lives(lives, options, cluster)
    report = describe([*lives], options)
    report.publish(options.results)
    return int(any(life.output != EQUAL for life in lives))


def run_lives(lives: Results[Life], options: argparse.Namespace, cluster: SparkCluster) -> None:
    """Run jobs until there are enough kills or the time limit is reached."""
    deadline, job = Deadline(options.limit), JOBS[options.job]
    number = sum(1 for _ in lives)
    most = number + 3 * -(-(options.executors + options.workers) // options.per_life)  # some kills are too late
    while number < most and not deadline.is_over() and (plan := draw([*lives], options, number)):
        name = f"{job.name}-{options.seed * 10_000 + number}"
        number += 1
        with scratch_folder() as folder:
            life = live(job, name, folder, plan, cluster)
        lives.add(life)
        print(f"{life.name}: {len(life.kills)} kills, {one_line(life.output)} ({life.seconds:.0f} s)", file=sys.stderr)


def draw(lives: Sequence[Life], options: argparse.Namespace, number: int) -> list[str]:
    """Draw the victims of a life, in order. Empty: there have been enough kills."""
    killed = Counter(victim for life in lives for victim, _ in life.kills)
    wanted = Counter(executor=options.executors, worker=options.workers) - killed
    victims = [*wanted.elements()]
    random.Random(options.seed * 10_000 + number).shuffle(victims)
    return victims[: options.per_life]


def live(job: Job, name: str, folder: Path, victims: Sequence[str], cluster: SparkCluster) -> Life:
    """Run ``job`` on ``cluster`` in ``folder``, kill ``victims``, and compare its output."""
    begun, chance = time.monotonic(), random.Random(name)
    module, ready = import_module(job.module), prepared(job)
    counted: list[list[str]] = []
    command = ["-m", "storms.common.launch_on_cluster", cluster.master, job.module, str(folder), *ready.arguments]
    with JobProcess(folder, command) as process:
        try:
            process.start()
            for victim in victims:
                gate = Gate(folder, chance.choice(module.GATES))
                if not strike(process, gate, victim, cluster):
                    break  # the job has ended
                counted.append([victim, gate.name])
            process.finish()
            output = differences(ready.expected, ready.written(folder, 0)) or EQUAL
        except JobOverError as error:
            output = f"failed: {last_error(process.log_file.read_text(errors='replace')) or error}"
    return Life(name, job.name, output, counted, len(victims) - len(counted), round(time.monotonic() - begun, 1))


def strike(process: JobProcess, gate: Gate, victim: str, cluster: SparkCluster) -> bool:
    """Kill ``victim`` while its task waits at ``gate``. Returns whether there was one: the job may have ended."""
    try:
        executor = executor_of(process.run_to(gate))
    except JobOverError as error:
        if error.code != 0:
            raise
        return False
    if executor is None:
        raise JobOverError("The task that waits at a gate does not run in an executor.")
    pid, command = executor
    if victim == "executor":
        os.kill(pid, signal.SIGKILL)
        gate.open()
    else:
        port = worker_port(command)
        cluster.kill_worker(port)
        gate.open()
        cluster.start_worker(port)
    return True


def executor_of(process: int) -> tuple[int, str] | None:
    """Return the process id and the command line of the executor that started ``process``; None if there is none."""
    return next(((pid, command) for pid, command in _ancestors(process) if _EXECUTOR in command), None)


def worker_port(command: str) -> int:
    """Return the port of the worker that started an executor, from the executor's command line."""
    found = _WORKER.search(command)
    assert found is not None, command
    return int(found.group(1))


def _ancestors(process: int) -> Iterator[tuple[int, str]]:
    with suppress(FileNotFoundError):  # it has ended
        while process > 1:
            folder = Path("/proc", str(process))
            yield process, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            status = (folder / "stat").read_text()
            process = int(status.rpartition(")")[2].split()[1])  # after the name, which may contain anything


def describe(lives: Sequence[Life], options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Executors and workers of a cluster", conditions(NAME, options.seed))
    kills = Counter(victim for life in lives for victim, _ in life.kills)
    report.table("Kills", ("victim", "kills"), [(victim, kills[victim]) for victim in VICTIMS])
    equal = sum(life.output == EQUAL for life in lives)
    late = sum(life.too_late for life in lives)
    report.table(
        "Lives",
        ("lives", "output equal", "not equal", "kills too late"),
        [(len(lives), equal, len(lives) - equal, late)],
    )
    if bad := [(life.name, one_line(life.output)) for life in lives if life.output != EQUAL]:
        report.table("Lost, duplicated or failed", ("life", "output"), bad)
    for victim, wanted in zip(VICTIMS, (options.executors, options.workers), strict=True):
        report.at_least(f"kills of {victim}s", kills[victim], wanted)
    report.at_most("lives with a different output", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: results are found by the name of its classes.
    from storms import cluster

    sys.exit(cluster.main())
