"""Errors of pyiceberg."""

from __future__ import annotations

from functools import partial

from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

from dsv2.connectors.client_errors import as_job_errors
from dsv2.errors import JobError

_RAISED = (JobError, CommitFailedException, CommitStateUnknownException)

named_errors = partial(as_job_errors, kinds=(Exception,), others=_RAISED)
"""Raises errors as ``JobError``, but conflicts as they are."""
