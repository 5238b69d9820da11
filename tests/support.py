"""Shared helpers for tests of the runtime: channels as lists, functions from lambdas, one subtask driven by hand."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import dsv2
from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.program import ProgramDescription
from dsv2.errors import ConfigurationError
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.graph import Operator, Plan
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import END, START, STATUS, WATERMARK, Control
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.operator.subtask_restore import Announcement, OperatorParts
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import Codec, References
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import in_entries
from dsv2.runtime.state.rows import StateRow, rows_of
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import CollectSink
from tests import ROOT
from tests.durations import LONG

_CHECKOUT = Path(dsv2.__file__).parent.parent
_OUR_PACKAGES = tuple(_CHECKOUT / name for name in ("dsv2", "runtime_spark"))


class Signal(NamedTuple):
    """A control element between records."""

    kind: int
    identifier: str = ""
    value: int | bool = 0


STARTED, ENDED = Signal(START), Signal(END)
IDLE, ACTIVE = Signal(STATUS, "", True), Signal(STATUS, "", False)


def reread(program: ProgramDescription) -> ProgramDescription:
    """The description of a program as it is read back from a checkpoint."""
    return msgspec.json.decode(msgspec.json.encode(program), type=ProgramDescription)


def watermark(value: int | bool, identifier: str = "w") -> Signal:
    return Signal(WATERMARK, identifier, value)


def packed(sequence: Iterable[Any]) -> tuple[RecordBatch[Any], list[Control]]:
    """Records and controls as a frame stores them."""
    records: list[Any] = []
    controls: list[Control] = []
    for element in sequence:
        if isinstance(element, Signal):
            controls.append((len(records), *element))
        else:
            records.append(element)
    return RecordBatch(records), controls


def unpacked(records: Sequence[Any], controls: list[Control]) -> list[Any]:
    """The elements in order."""
    sequence, done = [], 0
    for position, kind, identifier, value in controls:
        sequence += [*records[done:position], Signal(kind, identifier, value)]
        done = position
    return [*sequence, *records[done:]]


def elements(frames: Iterable[Frame]) -> list[Any]:
    """The elements of several frames of one channel, without start signals."""
    return [element for f in frames for element in unpacked(f.batch.records, f.controls) if element != STARTED]


def _scripted(kind: Any, **callbacks: Callable[..., Any]) -> Any:
    # An instance may not have abstract methods.
    body = {**dict.fromkeys(kind.__abstractmethods__, lambda *args: None), **callbacks}
    return type("Scripted", (kind,), {name: staticmethod(callback) for name, callback in body.items()})()


# Functions with the given callbacks (without ``self``). The other callbacks do nothing.
one_input: Callable[..., OneInputStreamProcessFunction[Any, Any]]
one_input = partial(_scripted, OneInputStreamProcessFunction)
two_output: Callable[..., TwoOutputStreamProcessFunction[Any, Any, Any]]
two_output = partial(_scripted, TwoOutputStreamProcessFunction)
two_inputs: Callable[..., TwoInputNonBroadcastStreamProcessFunction[Any, Any, Any]]
two_inputs = partial(_scripted, TwoInputNonBroadcastStreamProcessFunction)
broadcast_side: Callable[..., TwoInputBroadcastStreamProcessFunction[Any, Any, Any]]
broadcast_side = partial(_scripted, TwoInputBroadcastStreamProcessFunction)


def pass_on(record: Any, output: Any, ctx: Any) -> None:
    """Forward a record."""
    output.collect(record)


def local_environment(parallelism: int = 1) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(parallelism)
    return env


def operator_named(plan: Plan, uid: str) -> Operator:
    return next(operator for operator in plan.operators if operator.uid == uid)


def job_context(plan: Plan) -> JobContext:
    return JobContext(plan.job_name, plan.mode, plan.declarations, Codec(TypeRegistry.of(plan)), BatchTime(0))


class KeptEntries:
    """The map that a runtime keeps for a subtask. Records the calls."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int], bytes] = {}
        self.read: list[tuple[str, int]] = []
        self.written: list[tuple[str, int]] = []

    def get(self, name: str, number: int) -> bytes | None:
        self.read.append((name, number))
        return self.kept.get((name, number))

    def put(self, name: str, number: int, data: bytes) -> None:
        self.written.append((name, number))
        self.kept[name, number] = data

    def remove(self, name: str, number: int) -> None:
        del self.kept[name, number]

    def forget_calls(self) -> None:
        self.read.clear()
        self.written.clear()


class CountingCodec(Codec):
    """Counts the values that pass through, for example pages of a keyed store."""

    def __init__(self) -> None:
        super().__init__(TypeRegistry())
        self.decoded = self.encoded = 0

    def loads(self, data: bytes, owner: str, references: References | None = None) -> Any:
        self.decoded += 1
        return super().loads(data, owner, references)

    def loads_columns(self, data: bytes, owner: str) -> list[Sequence[Any]]:
        self.decoded += 1
        return super().loads_columns(data, owner)

    def dumps(self, value: Any) -> bytes:
        self.encoded += 1
        return super().dumps(value)

    def dumps_columns(self, columns: Sequence[Sequence[Any]]) -> bytes:
        self.encoded += 1
        return super().dumps_columns(columns)


class NoRows:
    """Replaces a Spark DataFrame."""

    isStreaming = False  # noqa: N815 - Spark's name


class _OneSubtask:
    """The succession of a program whose operators have one subtask, before and after."""

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorParts]) -> OperatorParts:
        (parts,) = old
        return parts

    def announcements(self, operator: Operator, subtask: int) -> Sequence[Announcement]:
        return ()

    def first_states(
        self, operator: Operator, subtask: int, given: Sequence[Mapping[str, bytes]]
    ) -> Mapping[str, bytes]:
        (states,) = given
        return states

    def has_new_senders(self, uid: str, number: int) -> bool:
        return False


class Driver:
    """Subtask ``index`` of the chain with the head ``uid``: elements in, elements out."""

    def __init__(self, plan: Plan, uid: str, index: int = 0, entries: KeptEntries | None = None) -> None:
        """``entries``: the store of its pages, if not in the blob."""
        self._plan = plan
        self._head = operator_named(plan, uid).id
        self._index = index
        self._job = job_context(plan)
        self._entries = entries
        if entries is not None:
            self._job = dataclasses.replace(self._job, page_stores=in_entries(entries, self._job.codec))
        self.frames: list[Frame] = []
        self.subtask = self._new_subtask()

    def open(self) -> Driver:
        self.subtask.open()
        return self

    def send(self, *sequence: Any, channel: int = 0) -> None:
        """Send elements of one channel, and flush the output."""
        self.subtask.receive(channel, *packed(sequence))
        self.subtask.flush()

    def pass_time(self, now_ms: int) -> None:
        """Start a micro-batch at a later time."""
        self._job.time.now_ms = now_ms
        self.subtask.begin_batch()
        self.subtask.flush()

    def sent_to(self, uid: str, subtask: int = 0) -> list[Any]:
        """Output to that subtask so far."""
        target = operator_named(self._plan, uid).id
        return elements(f for f in self.frames if (f.operator, f.subtask) == (target, subtask))

    def progress(self, uid: str) -> SubtaskReport:
        return next(report for report in self.subtask.progress() if report.uid == uid)

    def restart(self) -> None:
        """Continue with a new subtask that is restored from this one."""
        self.restart_in(self)

    def restart_in(self, changed: Driver) -> None:
        """Continue with a new subtask of a changed program, in the driver ``changed``."""
        blob = self.subtask.snapshot()
        changed.subtask = changed._new_subtask()
        changed.subtask.restore(blob)

    def rows(self) -> list[tuple[str, StateRow]]:
        """The state as rows, each with its uid."""
        from dsv2.arrow.keyed.snapshots import stored_columns  # loads pyarrow

        blob, entries = self.subtask.snapshot(), self._entries
        stores = None if entries is None else in_entries(entries, self._job.codec)
        return list(rows_of(blob, self._index, self._job.codec, "state", stored_columns, stores))

    def restart_from(self, rows: Iterable[tuple[str, StateRow]]) -> None:
        """Continue with a new subtask that is restored from rows of one old subtask."""
        if self._entries is not None:
            self._entries.kept.clear()
        self.subtask = self._new_subtask()
        restore = self.subtask.begin_restore(_OneSubtask())
        for uid, row in rows:
            restore.add(uid, [row])
        restore.finish()
        self.subtask.flush()

    def _new_subtask(self) -> Subtask:
        functions = {operator.id: copy.deepcopy(operator.function) for operator in self._plan.chains[self._head]}
        return Subtask(self._plan, self._head, self._index, functions, self._job, self.frames.append)


def driven(build: Callable[[Any], Any], uid: str = "f", channels: int = 1) -> Driver:
    """An opened driver for the operator ``uid`` that ``build`` puts between a source and the sink "out".

    ``channels`` is the parallelism of the source, and that of the operators is one. Each input has this number of
    channels (unless it is forward).
    """
    env = local_environment()
    build(env.from_collection(list[Any](), "in").with_parallelism(channels)).to_sink(CollectSink()).with_uid("out")
    return Driver(env.build_plan(), uid).open()


def our_files(traceback_text: str) -> list[str]:
    """The files of dsv2 in a traceback, wherever the checkout is. Users should see none."""
    files = re.findall(r'^ *File "(.+)", line \d+', traceback_text, re.MULTILINE)
    return [file for file in files if any(Path(file).is_relative_to(package) for package in _OUR_PACKAGES)]


def wait_until(condition: Callable[[], bool], seconds: float = LONG) -> None:
    """Wait for something that another thread or process does. Fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what was awaited did not come"
        time.sleep(0.005)


def await_release(location: Path) -> None:
    """Wait until no process uses a local checkpoint. One that ends closes its pipes first, and then the lock."""
    checkpoint = LocalCheckpoint(LocalFolder(str(location)))

    def acquired() -> bool:
        with suppress(ConfigurationError):
            checkpoint.acquire()
            return True
        return False

    wait_until(acquired)
    checkpoint.release()


def kill_when_it_waits(program: str, folder: Path) -> None:
    """Run a program with ``folder`` as its argument, and kill it when it prints "waits". Its job uses "checkpoint"."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "waits\n"
        job.kill()
        job.stdout.read()  # until every process that has the pipe has ended
    await_release(folder / "checkpoint")
