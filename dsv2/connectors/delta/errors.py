"""Errors of deltalake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError

from dsv2.base.secrets import ClientOptions
from dsv2.errors import JobError


@contextmanager
def named_errors(what: str, options: ClientOptions) -> Iterator[None]:
    """Raise deltalake's errors as ``JobError``, without secrets in ``options``. Conflicts are raised as they are."""
    try:
        yield
    except CommitFailedError:
        raise
    except (DeltaError, OSError, ValueError) as error:
        text = options.redacted(f"{what}: {type(error).__name__}: {error}")
        raise JobError(text) from options.presentable(error)
