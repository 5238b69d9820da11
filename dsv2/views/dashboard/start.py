"""``execute(..., dashboard=...)``: starts a job that a dashboard shows."""

from __future__ import annotations

import sys
from dataclasses import replace

from dsv2.graph import Plan
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.jobs.handle import JobHandle, JobRuntime, RunOptions
from dsv2.views.dashboard.jobs import Status
from dsv2.views.dashboard.running_job import LiveJob
from dsv2.views.dashboard.server import server_of


class DashboardRuntime:
    """A runtime whose jobs are on a dashboard, which listens when this object has been created.

    Args:
        runtime: The runtime.
        dashboard: The port, or the settings.

    Raises:
        ConfigurationError: The settings are invalid, the extra is not installed, or the port is in use.
    """

    def __init__(self, runtime: JobRuntime, dashboard: Dashboard | int) -> None:
        self._runtime = runtime
        self._server, is_new = server_of(Dashboard.of(dashboard))
        if is_new:
            print(f"Dashboard: {self._server.url}", file=sys.stderr, flush=True)

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Start ``plan``, and show it."""
        job = LiveJob(plan, options, self._runtime)
        identifier = self._server.board.add(job)
        try:
            return self._runtime.start(plan, replace(options, listeners=(*options.listeners, job)))
        finally:
            if job.record.snapshot().status is Status.STARTING:  # it was refused
                self._server.board.remove(identifier)
