"""The content of a live view: a job at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.jobs.summary import JobSummary


@dataclass(frozen=True, slots=True)
class ShownJob:
    """A job at one moment.

    Attributes:
        name: Its name.
        state: ``running``, ``stopping``, ``finished``, ``stopped`` or ``failed``.
        elapsed_ms: The time since its start, in ms.
        summary: Its numbers.
        note: What the user should know now, or None.
    """

    name: str
    state: str
    elapsed_ms: float
    summary: JobSummary
    note: str | None = None
