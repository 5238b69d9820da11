"""The storm of clusters finds the executor and the worker of a task, and reports different output. Without Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import Namespace
from collections import Counter

from storms import cluster
from storms.kills import EQUAL, Life

OPTIONS = Namespace(executors=2, workers=1, per_life=2, seed=1)
EXECUTOR = ["org.apache.spark.executor.CoarseGrainedExecutorBackend", "--worker-url", "spark://Worker@127.0.0.1:4123"]
START_DAEMON = """
import subprocess, sys
daemon = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
print(daemon.pid, flush=True)
sys.stdin.read()
"""


def test_executor_and_worker_of_a_task_are_found() -> None:
    command = [sys.executable, "-c", START_DAEMON, *EXECUTOR]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as executor:
        assert executor.stdout is not None
        found = cluster.executor_of(int(executor.stdout.readline()))
        assert found is not None
        assert found[0] == executor.pid
        assert cluster.worker_port(found[1]) == 4123
        executor.communicate()


def test_process_that_is_no_task_has_no_executor() -> None:
    assert cluster.executor_of(os.getpid()) is None


def test_victims_are_drawn_until_there_are_enough() -> None:
    first = cluster.draw([], OPTIONS, 0)
    assert len(first) == 2
    lives = [Life("one", "job", EQUAL, [[victim, "match"] for victim in first])]
    assert Counter(first + cluster.draw(lives, OPTIONS, 1)) == {"executor": 2, "worker": 1}
    lives.append(Life("two", "job", EQUAL, [["executor", "match"], ["executor", "count"], ["worker", "count"]]))
    assert cluster.draw(lives, OPTIONS, 2) == []


def test_lost_records_and_missing_kills_are_reported() -> None:
    lives = [
        Life("one", "job", EQUAL, [["executor", "match"], ["executor", "count"]]),
        Life("two", "job", "seen: 1 missing and 0 extra of 36"),
    ]
    verdicts = cluster.describe(lives, OPTIONS).verdicts
    assert [(verdict.claim, verdict.measured, verdict.met) for verdict in verdicts] == [
        ("kills of executors", 2, True),
        ("kills of workers", 0, False),
        ("lives with a different output", 1, False),
    ]
