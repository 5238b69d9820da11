"""Calls sinks and converts their exceptions into errors that name the sink and the micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv2.base.log_scope import in_operator
from dsv2.errors import JobError
from dsv2.graph import Operator
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.failure import NOT_OF_THE_USER
from dsv2.sinks import DriverSink, ParallelSink, Sink, SinkBatch, SinkInfo


def name_of(operator: Operator) -> str:
    """Return the name of the sink ``operator`` for error messages."""
    return f"The sink {operator}, defined at {operator.location},"


def write_on_driver(operator: Operator, info: SinkInfo, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
    """Write a micro-batch to a ``DriverSink``.

    Raises:
        JobError: The sink failed.
    """
    sink = operator.body
    assert isinstance(sink, DriverSink)
    try:
        with in_operator(operator.uid):
            sink.write(info, batches, batch_id)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        name = f"The function of the sink {operator}, defined at {operator.location},"
        raise JobError(f"{name} raised on batch {batch_id}: {type(error).__qualname__}: {error}") from error


def begin(sink: Sink[Any], info: SinkInfo, batch_id: int, name: str) -> None:
    """Call ``begin`` of the sink ``name`` before a run writes its first micro-batch.

    Raises:
        JobError: The sink failed.
    """
    try:
        sink.begin(info, batch_id)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        raise _failure(f"{name} failed before batch {batch_id}", error) from error


def write_in_task(sink: ParallelSink[Any], batch: SinkBatch[Any], name: str) -> None:
    """Write the records of one subtask to the sink ``name``. Called in a task.

    Raises:
        JobError: The sink failed.
    """
    try:
        with in_operator(batch.info.uid, batch.subtask):
            sink.write(batch)
    except NOT_OF_THE_USER:
        raise
    except BaseException as error:
        raise _failure(f"{name} failed on batch {batch.batch_id}, subtask {batch.subtask}", error) from error


def _failure(what: str, error: BaseException) -> JobError:
    cause = str(error) if isinstance(error, JobError) else f"{type(error).__qualname__}: {error}"
    return JobError(f"{what}: {cause}")
