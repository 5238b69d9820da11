"""A live view of jobs."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from typing import TextIO

from dsv2.base.printable import printable
from dsv2.errors import Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.handle import JobHandle
from dsv2.jobs.listener import JobListener
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.summary import History, JobSummary, summarize
from dsv2.jobs.summary.pressure import WINDOW
from dsv2.plan_view.view import view_of
from dsv2.views.terminal.displays import Display, display_on
from dsv2.views.terminal.notebook import NotebookDisplay, is_in_notebook, job_html
from dsv2.views.terminal.texts import ShownJob


class Summarizer:
    """Summarizes the progress of one job. ``plan``: Its plan."""

    def __init__(self, plan: Plan) -> None:
        self._view = view_of(plan)
        self._history = History(WINDOW).describe(self._view)

    def summary(self, progress: JobProgress) -> JobSummary:
        """Summarize ``progress``."""
        self._history.add(progress)
        return summarize(self._view, progress, self._history.moments)


_EVERY_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_END_SECONDS = 5.0

_log = logging.getLogger(__name__)


class LiveView(JobListener):
    """Shows the jobs of an environment while they run. Add it with ``env.add_job_listener(LiveView())``.

    On a terminal it shows throughput, lag, event time and watermarks, the slowest operator, errors and records held
    at the bottom, while other output scrolls above. This requires the extra ``cli``; without it, the view is a single
    line. Anywhere else, or if ``TERM`` is ``dumb``, it prints a line every five seconds. ``NO_COLOR`` is respected.
    In a notebook it is a table below the cell.

    ``watch`` also handles Ctrl-C.

    Args:
        stream: Where to show the jobs. None (default): standard error.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._views: dict[int, JobView] = {}

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        """Begin to show a job."""
        self._views[id(job)] = view = JobView(job, plan, display_on(self._stream or sys.stderr))
        view.start()

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        """Show the progress now, not only with the next second."""
        if (view := self._views.get(id(job))) is not None:
            view.refresh()

    def on_ended(self, job: JobHandle) -> None:
        """Show a job no longer."""
        if (view := self._views.pop(id(job), None)) is not None:
            view.end()


class JobView:
    """Shows one job in a thread until ``end`` is called.

    Args:
        job: The job.
        plan: Its plan.
        display: Where to show it.
    """

    def __init__(self, job: JobHandle, plan: Plan, display: Display) -> None:
        self._job = job
        self._name = printable(plan.job_name)
        self._summarizer = Summarizer(plan)
        self._display = display
        self._began = time.monotonic()
        self._wake = threading.Event()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"dsv2-view-{self._name}", daemon=True)
        self._state = "running"
        self._note: str | None = None

    def start(self) -> None:
        """Begin to show the job."""
        self._thread.start()

    def refresh(self) -> None:
        """Show the job now."""
        self._wake.set()

    def stopping(self, note: str) -> None:
        """Show that the job is being stopped. ``note``: What the user should know."""
        self._state, self._note = "stopping", note
        self._wake.set()

    def end(self, note: str | None = None) -> None:
        """Remove the job from the display: it has ended, or nobody waits for it. ``note``: A final message."""
        self._note = note  # before the state, which is not shown without it
        with contextlib.suppress(Exception):  # Spark has ended; the caller knows the reason
            self._state = self._job.status.value.lower()
        self._is_over.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def shown(self) -> ShownJob:
        """The job now."""
        elapsed = (time.monotonic() - self._began) * 1000
        summary = self._summarizer.summary(self._job.progress)
        return ShownJob(self._name, self._state, elapsed, summary, self._note)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._wake.clear()
                self._display.show(self.shown())
                if not self._is_over.wait(_PAUSE_SECONDS):  # many short micro-batches are not all shown
                    self._wake.wait(_EVERY_SECONDS - _PAUSE_SECONDS)
            self._display.end(self.shown())
        except Exception:  # a view must not disturb the program
            _log.warning("The live view of job %r ends because of an error.", self._name, exc_info=True)


def html_of(job: JobHandle) -> str:
    """A job at this moment as HTML."""
    view = JobView(job, job.plan, NotebookDisplay())
    view.end()
    return job_html(view.shown())


def show_in_notebook(job: JobHandle) -> None:
    """Show a job below the current cell of a notebook until it has ended, with its error.

    In a terminal with IPython, print it once.
    """
    if not is_in_notebook():
        print(job)
        return
    display = NotebookDisplay()
    view = JobView(job, job.plan, display)
    display.show(view.shown())  # here, as another thread might show it below a later cell
    view.start()

    def end() -> None:
        error = None
        try:
            job.await_termination()
        except Dsv2Error as failure:
            error = str(failure)
        view.end(error)

    threading.Thread(target=end, name=f"dsv2-view-end-{job.plan.job_name}", daemon=True).start()
