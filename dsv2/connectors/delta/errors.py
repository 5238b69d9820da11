"""Errors of deltalake."""

from __future__ import annotations

from functools import partial

from deltalake.exceptions import CommitFailedError, DeltaError

from dsv2.connectors.client_errors import as_job_errors

named_errors = partial(as_job_errors, kinds=(DeltaError, OSError, ValueError), others=(CommitFailedError,))
"""Raises errors as ``JobError``, but conflicts as they are."""
