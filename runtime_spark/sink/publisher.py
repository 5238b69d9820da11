"""Publishes the micro-batches of file sinks when Spark has committed them, and merges small files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from runtime_spark.sink.file_sinks import SparkFileSinkWriter

_LOG = logging.getLogger("dsv2.spark.publisher")
_POLL_SECONDS = 0.005
_LONGEST_POLL_SECONDS = 0.5


class Publisher(threading.Thread):
    """A thread for the file sinks of a job. Without sinks it is not started.

    A micro-batch is published when its commit is in the checkpoint, and at the latest before the next one is prepared.
    """

    def __init__(
        self,
        sinks: Sequence[SparkFileSinkWriter],
        is_committed: Callable[[int], bool],
        is_over: Callable[[], bool],
        ended_normally: Callable[[], bool],
    ) -> None:
        """Create the thread.

        Args:
            sinks: The sinks, which have begun.
            is_committed: Whether a micro-batch is committed.
            is_over: Whether there is no further micro-batch.
            ended_normally: Whether the job that is over has not failed.
        """
        super().__init__(name="dsv2-publisher", daemon=True)
        self._sinks = sinks
        self._is_committed = is_committed
        self._is_over = is_over
        self._ended_normally = ended_normally
        self._changed = threading.Condition()
        self._prepared: int | None = None
        self._is_late = False
        self._ending = False
        self._failure: Exception | None = None

    def await_published(self) -> None:
        """Wait until the last micro-batch is published. Raises the error of the thread, if it has failed.

        Called when the next micro-batch has begun, so the last one is committed.
        """
        with self._changed:
            self._is_late = True
            self._changed.notify_all()
            while self._prepared is not None and self._failure is None:
                self._changed.wait()
        self._raise()

    def prepared(self, batch_id: int) -> None:
        """Called when the sinks have written a micro-batch."""
        if not self._sinks:
            return
        with self._changed:
            self._prepared = batch_id
            self._is_late = False
            self._changed.notify_all()

    def end(self) -> None:
        """Wait until everything is published. Called when the job is over. Raises the error of the thread."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        if self.is_alive():
            self.join()
        self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        try:
            while not self._await_work():
                self._work()
            self._work()
            if self._prepared is None and self._ended_normally():
                for sink in self._sinks:
                    sink.finish()
        except Exception as error:
            _LOG.exception("A file sink has failed.")
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _await_work(self) -> bool:
        """Wait for a micro-batch to publish or files to merge. Returns whether the job is over."""
        with self._changed:
            while self._prepared is None and not self._is_due():
                if self._ending or self._is_over():
                    return True
                self._changed.wait(_LONGEST_POLL_SECONDS)
        return self._ending or self._is_over()

    def _work(self) -> None:
        if self._prepared is not None and self._await_commit(self._prepared):
            for sink in self._sinks:
                sink.publish()
            with self._changed:
                self._prepared = None
                self._changed.notify_all()
        for sink in self._sinks:
            if sink.is_due():
                sink.roll()

    def _is_due(self) -> bool:
        return any(sink.is_due() for sink in self._sinks)

    def _await_commit(self, batch_id: int) -> bool:
        """Wait until a micro-batch is committed. False if it will not be."""
        pause = _POLL_SECONDS
        while not self._is_committed(batch_id):
            if self._is_over():
                return self._is_committed(batch_id)
            with self._changed:
                self._changed.wait_for(lambda: self._is_late or self._ending, pause)
            pause = min(2 * pause, _LONGEST_POLL_SECONDS)
        return True
