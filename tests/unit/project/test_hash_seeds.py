"""Arguments of a job have the same order in every process, or are refused: two hash seeds give the same job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsv2.errors import ConfigurationError
from dsv2.sinks import FileSink
from tests import ROOT

JOB = """
import enum, sys
from dsv2 import *
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.state import StateDeclarations
from dsv2.sources import DataGeneratorSource

class Rights(enum.Flag):
    READ = 1
    WRITE = 2

KINDS = {"alpha", "beta", "gamma", "delta"}
TAGS = [OutputTag(name, str) for name in sorted(KINDS)]
STATES = [StateDeclarations.value_state(name, int) for name in sorted(KINDS)]
WATERMARKS = [new_builder(name).type_long().build() for name in sorted(KINDS)]
NAMES = sorted(KINDS)

def record(index):
    if index == int(sys.argv[2]):
        raise ValueError("stops here")
    return NAMES[index % 4], Rights(index % 4), frozenset(NAMES[: index % 4])

class Count(OneInputStreamProcessFunction):
    def uses_states(self): return set(STATES)
    def declare_outputs(self): return set(TAGS)
    def declare_watermarks(self): return set(WATERMARKS)
    def process_record(self, record, output, ctx):
        name, rights, kinds = record
        for number, declaration in enumerate(STATES):
            state = ctx.state_manager.get_state(declaration)
            state.update((state.value() or 0) + 1 + number)
        ctx.output(TAGS[NAMES.index(name)], f"{name} {state.value()}")
        output.collect((name, rights.value, sorted(kinds), state.value(), name in {"alpha", "beta", "delta"}))

env = ExecutionEnvironment.get_instance(runtime="local")
env.set_parallelism(2)
env.register_type(Rights)
numbers = env.from_source(DataGeneratorSource(record, count=40, records_per_batch=5)).with_uid("source")
kept = numbers.filter(lambda one: one[0] in {"alpha", "beta", "gamma"} or one[0] in KINDS).with_uid("kept")
keyed = kept.key_by(lambda one: one[1] if one[0] in {"alpha", "beta"} else Rights(0))
counted = keyed.process(Count()).with_uid("count")
sinks = [CollectSink(), *(CollectSink() for tag in TAGS)]
counted.to_sink(sinks[0]).with_uid("main")
for tag, sink in zip(TAGS, sinks[1:]):
    counted.side_output(tag).to_sink(sink).with_uid(tag.name)
plan = env.build_plan()
print([tag.name for tag in plan.operators[2].side_outputs], file=sys.stderr)
try:
    env.execute(checkpoint_location=sys.argv[1], on_change="refuse")
except JobError as error:
    print(str(error).splitlines()[0])
for sink in sinks:
    print(sink.results)
"""


def run(job: Path, seed: int, checkpoint: Path, fails_at: int) -> tuple[str, str]:
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", str(job), str(checkpoint), str(fails_at)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_two_seeds_give_the_same_job_and_continue_each_other(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(JOB)
    first = [run(job, seed, tmp_path / f"of {seed}", fails_at=22) for seed in (1, 2, 3)]
    assert first[0] == first[1] == first[2]
    assert "stops here" in first[0][0]
    assert "['alpha', 'beta', 'delta', 'gamma']" in first[0][1]
    continued = [run(job, other, tmp_path / f"of {seed}", fails_at=-1) for seed, other in ((1, 2), (2, 2), (3, 1))]
    assert continued[0] == continued[1] == continued[2]
    assert "stops here" not in continued[0][0]


def test_set_of_columns_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="partition_by must be a list of different columns"):
        FileSink("out", schema="day int, shop int", partition_by={"day", "shop"})  # type: ignore[arg-type]
