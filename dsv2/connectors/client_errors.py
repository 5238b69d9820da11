"""Errors of client libraries, as errors of the job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dsv2.base.secrets import ClientOptions
from dsv2.errors import JobError


@contextmanager
def as_job_errors(
    what: str, secrets: ClientOptions, kinds: tuple[type[Exception], ...], others: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Raise errors of ``kinds`` in a ``with`` block as ``JobError``, which begins with ``what``, without ``secrets``.

    ``others``: Exceptions that are raised as they are, although they are of ``kinds``.
    """
    try:
        yield
    except others:
        raise
    except kinds as error:
        text = secrets.redacted(f"{what}: {type(error).__name__}: {error}")
        raise JobError(text) from secrets.presentable(error)
