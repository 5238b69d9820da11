"""Waits for a job, shows it, and stops it on Ctrl-C."""

from __future__ import annotations

import sys
import threading
from contextlib import nullcontext
from datetime import timedelta
from typing import TextIO

from dsv2.checks.tracebacks import short_traceback
from dsv2.jobs.handle import JobHandle, JobResult, JobStatus
from dsv2.views.terminal.displays import display_on
from dsv2.views.terminal.live_view import JobView
from dsv2.views.terminal.signals import NotedSignals, signals_noted

_POLL = timedelta(milliseconds=250)
_STOPPING = "Stopping after the running micro-batch. Ctrl-C again cancels it."
_CANCELLING = "Cancelling the running micro-batch, which the next start repeats. Ctrl-C again ends the program."


@short_traceback
def watch(
    job: JobHandle,
    *,
    signals: NotedSignals | None = None,
    continue_with: str | None = None,
    stream: TextIO | None = None,
) -> JobResult:
    """Show a job until it ends, and stop it on Ctrl-C. Call it in the main thread, for ``execute_async``::

        watch(env.execute_async("orders", checkpoint_location="/data/orders"))

    The first Ctrl-C, or SIGTERM, stops the job after the running micro-batch; a second one cancels that micro-batch,
    which is repeated when the job continues. The third raises ``KeyboardInterrupt``, for a function that never
    returns. ``LiveView`` describes what is shown.

    Args:
        job: The job.
        signals: What ``signals_noted`` has yielded, if the program starts Spark within that context. None (default):
            signals are noted while this function runs.
        continue_with: The command that continues the job, to be shown if a signal has stopped it.
        stream: Where to show the job. None (default): standard error.

    Returns:
        The result of the job. ``job.status`` is ``STOPPED`` if a signal has stopped it.

    Raises:
        Dsv2Error: The job failed; this is the error that it failed with.
        JobError: It was cancelled, but has not ended.
        KeyboardInterrupt: Ctrl-C was pressed three times.
    """
    stream = stream or sys.stderr
    with signals_noted() if signals is None else nullcontext(signals) as noted:
        view = JobView(job, job.plan, display_on(stream))
        view.start()
        stopper = _Stopper(job, view)
        try:
            while not job.await_termination(timeout=_POLL):
                stopper.obey(noted)
        finally:
            view.end()
    if stopper.level and job.status is JobStatus.STOPPED:
        after_echo = "\n" if noted.interrupts and stream.isatty() else ""  # the terminal has printed ^C
        print(f"{after_echo}{_farewell(job, continue_with)}", file=stream, flush=True)
    return job.result()


def _farewell(job: JobHandle, continue_with: str | None) -> str:
    batch = job.progress.batch_id
    where = "before its first micro-batch" if batch < 0 else f"after micro-batch {batch:,}"
    to_continue = "" if continue_with is None else f" To continue:\n  {continue_with}"
    return f"Stopped {where}.{to_continue}"


class _Stopper:
    """Stops a job as often as signals ask for it, each time more forcefully. ``level``: How forcefully until now."""

    def __init__(self, job: JobHandle, view: JobView) -> None:
        self._job = job
        self._view = view
        self._error: BaseException | None = None
        self.level = 0

    def obey(self, signals: NotedSignals) -> None:
        """Called from time to time."""
        if self._error is not None:
            raise self._error
        if signals.count and self.level == 0:
            self._stop(_STOPPING, None)
        if signals.count > 1 and self.level == 1:
            self._stop(_CANCELLING, timedelta(0))
        if signals.count > 2:
            raise KeyboardInterrupt

    def _stop(self, note: str, timeout: timedelta | None) -> None:
        self.level += 1
        self._view.stopping(note)

        def stop() -> None:  # in a thread, because it waits, and there may be more signals
            try:
                self._job.stop(timeout)
            except BaseException as error:
                self._error = error

        threading.Thread(target=stop, name=f"dsv2-stop-{self.level}", daemon=True).start()
