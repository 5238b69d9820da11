"""Writes micro-batches to the sinks on the driver, from the frames of their subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsv2.base.garbage_collector import patient_collector
from dsv2.graph import Operator, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.report.driver_limits import DriverLimits
from dsv2.runtime.report.sink_calls import begin, name_of, write_on_driver
from dsv2.sinks import DriverSink, SinkInfo, SinkRunInfo
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.worker import load_job


class DriverSinks:
    """The sinks of a plan that are written on the driver, in this process.

    Args:
        plan: The plan.
        layout: Its layout.
        packed: The job for the workers.
        job_id: Identifies the checkpoint.
        run: The run that writes.
    """

    def __init__(self, plan: Plan, layout: Layout, packed: bytes, job_id: str, run: SinkRunInfo) -> None:
        self._plan = plan
        self._packed = packed
        self._sinks = [
            (operator, SinkInfo(job_id, operator.uid, operator.parallelism, run))
            for operator in plan.operators
            if isinstance(operator.body, DriverSink)
        ]
        self.slots: Mapping[int, str] = {
            slot: operator.uid for operator, _ in self._sinks for slot in layout.slots_of(operator)
        }
        """The uid of the sink of each slot."""
        self.writes_to: Operator | None = None
        """The sink that is being written to."""

    def begin(self, batch_id: int) -> None:
        """Call ``begin`` of the sinks before the first micro-batch of the run. Raises ``JobError``."""
        for operator, info in self._sinks:
            assert isinstance(operator.body, DriverSink)
            begin(operator.body, info, batch_id, name_of(operator))

    def write(self, outputs: dict[str, list[bytes]], batch_id: int) -> None:
        """Write a micro-batch.

        Args:
            outputs: The frames of each sink, by its uid. They are removed when they have been decoded.
            batch_id: The micro-batch, as sinks number it.

        Raises:
            JobError: A sink failed, or receives more than its limit.
        """
        codec = load_job(self._packed).codec()
        limits = DriverLimits(self._plan)
        for operator, info in self._sinks:
            payloads = outputs.pop(operator.uid, [])
            with patient_collector():
                batches = []
                for payload in payloads:
                    batches.append(decode_frame(codec, payload, str(operator))[0])
                    limits.add(operator.id, len(batches[-1]), len(payload))
                    limits.check()
                self._pass_on(operator, info, [batch for batch in batches if batch], batch_id)

    def _pass_on(self, operator: Operator, info: SinkInfo, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        self.writes_to = operator
        write_on_driver(operator, info, batches, batch_id)
        self.writes_to = None


class StoredOutputs(DriverSinks):
    """Keeps what sinks are to receive, because another process writes them. It has been checked against their limits.

    Attributes:
        taken: The frames of the last micro-batch, by the uid of the sink.
    """

    def begin(self, batch_id: int) -> None:
        """Do nothing: the other process calls ``begin``."""

    def write(self, outputs: dict[str, list[bytes]], batch_id: int) -> None:
        """Keep a micro-batch."""
        self.taken = {uid: payloads for uid, payloads in outputs.items() if payloads}
        super().write(outputs, batch_id)

    def _pass_on(self, operator: Operator, info: SinkInfo, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        """Do nothing: the other process writes to the sink."""
