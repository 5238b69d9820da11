"""A job listener that records its calls."""

from __future__ import annotations

from typing import Any

from dsv2 import JobHandle, JobResult
from dsv2.graph import Plan
from dsv2.jobs import JobListener, JobProgress


class JobRecorder(JobListener):
    """Records what happens to a job with an operator ``uid``."""

    def __init__(self, uid: str = "map") -> None:
        self._uid = uid
        self.events: list[Any] = []
        self.result: JobResult | None = None

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        self.events.append(("started", job.status.value, plan.job_name))

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.events.append((progress.batch_id, progress.operators[self._uid].records_in))

    def on_ended(self, job: JobHandle) -> None:
        self.events.append(("ended", job.status.value))
        if job.exception() is None:
            self.result = job.result()  # it is known, so this does not wait
