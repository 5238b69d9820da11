"""Every call of a sink. What it raises leaves here as an error that names the sink and the micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv2.errors import JobError
from dsv2.graph import Operator
from dsv2.record_batch import RecordBatch
from dsv2.runtime.report.failure import NOT_OF_THE_USER
from dsv2.sinks import DriverSink, ParallelSink, SinkBatch, SinkInfo

__all__ = ("begin", "name_of", "write_in_task", "write_on_driver")


def name_of(operator: Operator) -> str:
    """How errors call the sink ``operator``."""
    return f"The sink {operator}, defined at {operator.location},"


def write_on_driver(operator: Operator, job_id: str, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
    """Give a ``DriverSink`` a micro-batch of the job ``job_id``. Raises ``JobError``."""
    sink = operator.body
    assert isinstance(sink, DriverSink)
    try:
        sink.write(SinkInfo(job_id, operator.uid, operator.parallelism), batches, batch_id)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        name = f"The function of the sink {operator}, defined at {operator.location},"
        raise JobError(f"{name} raised on batch {batch_id}: {type(error).__qualname__}: {error}") from error


def begin(sink: ParallelSink[Any], info: SinkInfo, batch_id: int, name: str) -> None:
    """Tell the sink ``name`` that a run begins to write. Raises ``JobError``."""
    try:
        sink.begin(info, batch_id)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        raise _failure(f"{name} failed before batch {batch_id}", error) from error


def write_in_task(sink: ParallelSink[Any], batch: SinkBatch[Any], name: str) -> None:
    """Have the sink ``name`` write what is of one subtask. Raises ``JobError``."""
    try:
        sink.write(batch)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        raise _failure(f"{name} failed on batch {batch.batch_id}, subtask {batch.subtask}", error) from error


def _failure(what: str, error: BaseException) -> JobError:
    told = str(error) if isinstance(error, JobError) else f"{type(error).__qualname__}: {error}"
    return JobError(f"{what}: {told}")
