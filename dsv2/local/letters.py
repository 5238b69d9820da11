"""The dead letters of local jobs that nothing reads."""

from __future__ import annotations

from dsv2.dead_letters.location import letters_path
from dsv2.dead_letters.store import JobLetters, LetterWriter
from dsv2.graph import Plan
from dsv2.job import RunOptions
from dsv2.paths import local_folder

__all__ = ("letter_writer",)


def letter_writer(plan: Plan, options: RunOptions, job_id: str) -> LetterWriter | None:
    """Return the writer of the letters of a job; None if it has neither letters nor a folder.

    Raises:
        ConfigurationError: There is no folder for the letters, or it is not a local one.
    """
    path = letters_path(plan, options.dead_letters, options.checkpoint_location)
    if path is None:
        return None
    folder = local_folder(path, "The local runtime stores dead letters in a local folder.")
    return LetterWriter(JobLetters(folder, job_id), plan.job_name, None)
