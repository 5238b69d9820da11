"""Passes a job to the workers: as bytes in Spark's closure, unpickled once per process."""

from __future__ import annotations

import dataclasses
import gc
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

from pyspark import TaskContext

from dsv2.checkpoint.program import ProgramDescription
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.graph.sinks_elsewhere import SinkElsewhere
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.operator.subtask_restore import Succession
from dsv2.runtime.operator.time_sender import SentBefore
from dsv2.runtime.rescale import ProgramSuccession
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.page_store import PageStores, in_blob
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import Sink
from dsv2.sources import BaseSource
from dsv2.watermark import WatermarkDeclaration
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import FrameEncoder
from runtime_spark.frames.state_history import StateHistory
from runtime_spark.frames.state_key import StateKey
from runtime_spark.frames.worker_logging import configure_logging
from runtime_spark.platform.closures import from_bytes, to_bytes

_PARTS = 16  # of jobs, which a worker keeps
_TAG = re.compile(r"dsv2-micro-batch-(\d+)")


@dataclass(frozen=True)
class RestoredProgram:
    """Restore metadata for subtasks.

    ``program``: The program that wrote it. ``sent``: What the readers of its sources had sent, by uid.
    """

    program: ProgramDescription
    sent: Mapping[str, Sequence[SentBefore]]


@dataclass(frozen=True)
class WorkerJob:
    """A job as the workers see it: without sinks; functions, and sources that subtasks read themselves, as bytes.

    A stage has only the functions and sources that it needs (``pack_part``).

    ``origin``: Metadata of the savepoint that the run restores.
    ``traced_batch``: The micro-batch whose records are traced. None: there is none.
    ``logging``: The configuration of logging in worker processes. None: there is none.
    """

    plan: Plan
    layout: Layout
    registry: TypeRegistry
    functions: dict[int, bytes]
    sources: dict[int, bytes]
    state_key: StateKey | None = None
    history: StateHistory | None = None
    origin: RestoredProgram | None = None
    traced_batch: int | None = None
    logging: Mapping[str, Any] | None = None

    @property
    def running_plan(self) -> Plan:
        """The plan of the current task, in which records may be traced."""
        # Outside of a task the micro-batch is unknown. Only rows of collections are created there.
        is_traced = self.traced_batch is not None and (TaskContext.get() is None or batch_id() == self.traced_batch)
        return self._traced_plan if is_traced else self.plan

    @cached_property
    def _traced_plan(self) -> Plan:
        return dataclasses.replace(self.plan, traces=True)

    @cached_property
    def source_functions(self) -> dict[int, ProcessFunction]:
        """The functions chained to sources. They have no state, so one object of each is enough."""
        return {op.id: from_bytes(self.functions[op.id]) for op in self.plan.chained_to_sources}

    @cached_property
    def whole_plan(self) -> Plan:
        """The plan with its functions, which only a restore needs. They are never called."""
        operators = (
            dataclasses.replace(operator, body=from_bytes(self.functions[operator.id]))
            if operator.id in self.functions
            else operator
            for operator in self.plan.operators
        )
        return dataclasses.replace(self.plan, operators=tuple(operators))

    def succession(self, codec: Codec) -> Succession:
        """Return how the subtasks continue those of the savepoint that the run restores."""
        assert self.origin is not None
        return ProgramSuccession(self.whole_plan, self.origin.program.operators, codec, self.origin.sent)

    @property
    def signing_key(self) -> bytes | None:
        """The key that signs state; None if state is not signed."""
        return None if self.state_key is None else self.state_key.value

    def codec(self) -> Codec:
        """Create a codec for the types of the job, which signs with its key."""
        return Codec(self.registry, self.signing_key)

    def new_subtask(
        self,
        head: int,
        index: int,
        encoder: FrameEncoder,
        codec: Codec,
        now_ms: int,
        page_stores: PageStores = in_blob,
    ) -> Subtask:
        """Create a subtask with its own function objects. ``now_ms``: The processing time of the micro-batch."""
        task = TaskContext.get()
        context = JobContext(
            self.plan.job_name,
            self.plan.mode,
            self.plan.declarations,
            codec,
            BatchTime(now_ms),
            task.attemptNumber() if task is not None else 0,
            page_stores,
        )
        functions: dict[int, ProcessFunction] = {
            operator.id: from_bytes(self.functions[operator.id]) for operator in self.plan.chains[head]
        }
        plan = self.running_plan
        if self.origin is not None:
            plan = dataclasses.replace(self.whole_plan, traces=plan.traces)
        return Subtask(plan, head, index, functions, context, encoder.emit)


def pack_job(
    plan: Plan,
    layout: Layout,
    registry: TypeRegistry,
    state_key: StateKey | None = None,
    history: StateHistory | None = None,
    origin: RestoredProgram | None = None,
    traced_batch: int | None = None,
    logging: Mapping[str, Any] | None = None,
) -> bytes:
    """Pickle the job for ``load_job``.

    Args:
        plan: The plan.
        layout: Its layout.
        registry: The data classes of the job.
        state_key: Signs state.
        history: The history of the state in its checkpoint.
        origin: The savepoint that the run restores. None (default): it restores none.
        traced_batch: The micro-batch whose records are traced. None (default): there is none.
        logging: The configuration of logging in worker processes. None (default): there is none.
    """
    functions = {
        operator.id: to_bytes(operator.body)
        for operator in plan.operators
        if isinstance(operator.body, ProcessFunction)
    }
    sources = {source: to_bytes(plan.operators[source].body) for source in plan.read_by}
    bare = dataclasses.replace(plan.with_stand_ins(map(_without_body, plan.operators)), registered_types=())
    packed: bytes = to_bytes(
        WorkerJob(bare, layout, registry, functions, sources, state_key, history, origin, traced_batch, logging)
    )
    return packed


def pack_part(packed: bytes, operators: Collection[int] = ()) -> bytes:
    """Return the part of a packed job that a stage of it needs. Spark sends it with the tasks of each micro-batch.

    Args:
        packed: The job.
        operators: The operators whose functions the stage calls. Those of sources are always included.
    """
    job = load_job(packed)
    if job.origin is not None:
        return packed  # the restore of a subtask compares the whole program
    kept = {*operators, *(operator.id for operator in job.plan.chained_to_sources)}
    functions = {operator: function for operator, function in job.functions.items() if operator in kept}
    sources = {source: body for source, body in job.sources.items() if job.plan.read_by[source] in kept}
    part: bytes = to_bytes(dataclasses.replace(job, functions=functions, sources=sources))
    return part


@lru_cache(maxsize=_PARTS)
def load_job(packed: bytes) -> WorkerJob:
    """Unpickle the result of ``pack_job``, once per process."""
    job: WorkerJob = from_bytes(packed)
    if job.logging is not None and TaskContext.get() is not None:  # on the driver, the program configures it
        configure_logging(job.logging)
    return job


def batch_tag(number: int) -> str:
    """Return the tag for the Spark jobs of a micro-batch on Spark Connect, where tasks have no property with it."""
    return f"dsv2-micro-batch-{number}"


def batch_id() -> int:
    """Return the micro-batch of the current task; 0 outside Spark's streaming queries."""
    if (task := TaskContext.get()) is None:
        return 0
    if (number := task.getLocalProperty("streaming.sql.batchId")) is not None:
        return int(number)
    tagged = _TAG.search(task.getLocalProperty("spark.job.tags") or "")
    return 0 if tagged is None else int(tagged[1])


def forget_modules() -> None:
    """Exclude the objects that are in memory now, mostly modules, from garbage collection. Call it in tasks.

    Spark collects cyclic garbage in the worker after each task, and the next task waits for it. With pandas and Arrow
    in memory, that takes longer than a small task.
    """
    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()


def _without_body(operator: Operator) -> Operator:
    if operator.kind is OperatorKind.SOURCE:
        return dataclasses.replace(operator, body=_SourceElsewhere())
    if isinstance(operator.body, Sink):
        return dataclasses.replace(operator, body=SinkElsewhere(operator.body.driver_limit))
    return dataclasses.replace(operator, body=ProcessFunction())


class _SourceElsewhere(BaseSource[Any]):
    """Replaces a source in the plan. A worker gets the source separately if it reads it."""

    @property
    def bounded(self) -> bool:  # pragma: no cover - abstract in BaseSource
        return True

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:  # pragma: no cover - abstract in BaseSource
        return ()
