"""Listeners of jobs: live views, dashboards and metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv2.errors import Dsv2Error
from dsv2.jobs.progress import JobProgress

if TYPE_CHECKING:
    from dsv2.graph import Plan
    from dsv2.jobs.handle import JobHandle


class JobListener:
    """Observes the jobs of an environment. Subclass it and override what you need.

    Add it with ``ExecutionEnvironment.add_job_listener``. It is called on the driver, in the threads of the job, so it
    should return soon. An exception is logged and does not affect the job.

    Source: Flink ``JobListener``, Spark ``StreamingQueryListener``.
    """

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        """Called once, when ``job`` is running. ``plan``: Its plan."""

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        """Called after each micro-batch of ``job``."""

    def on_restarting(self, job: JobHandle, error: Dsv2Error) -> None:
        """Called when ``job`` has failed with ``error``, before the local runtime waits and restarts it."""

    def on_ended(self, job: JobHandle) -> None:
        """Called once, when the job has finished, stopped or failed."""
