"""Log records as JSON on standard error, for ``dsv2 run --log-format json``."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from dsv2.cli.command import ERROR_PREFIX
from dsv2.views.logs import JobFilter, JsonFormatter

LOG = logging.getLogger("dsv2.cli")


class _RecordStream(io.TextIOBase):
    """A stream whose lines become log records of a job."""

    def __init__(self, job_name: str) -> None:
        self._fields = {"job": job_name}

    def write(self, text: str) -> int:
        if line := text.strip():
            level = logging.ERROR if line.startswith(ERROR_PREFIX) else logging.INFO
            LOG.log(level, line.removeprefix(ERROR_PREFIX), extra=self._fields)
        return len(text)


@contextmanager
def json_logs(job_name: str) -> Iterator[None]:
    """Within this context, standard error has log records only. What else is written to it becomes one.

    Records of all loggers are included, from the level INFO on, and Python's warnings.
    """
    handler, root = logging.StreamHandler(sys.stderr), logging.root
    handler.addFilter(JobFilter())
    handler.setFormatter(JsonFormatter())
    level, raises = root.level, logging.raiseExceptions
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.raiseExceptions = False  # an error of logging would be written to the stream, and be logged again
    logging.captureWarnings(True)
    try:
        with redirect_stderr(_RecordStream(job_name)):
            yield
    finally:
        logging.captureWarnings(False)
        logging.raiseExceptions = raises
        root.setLevel(level)
        root.removeHandler(handler)
