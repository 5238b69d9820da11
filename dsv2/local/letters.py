"""The dead letters of local jobs that nothing reads."""

from __future__ import annotations

from dsv2.checks.paths import local_folder
from dsv2.dead_letters.location import letters_path
from dsv2.dead_letters.store import JobLetters, LetterWriter
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions

_ONLY_LOCAL = "The local runtime stores dead letters in a local folder."


def job_letters(plan: Plan, options: RunOptions, job_id: str, *, durable: bool = True) -> JobLetters | None:
    """Return the letters of a job; None if it has neither letters nor a folder.

    Args:
        plan: The plan.
        options: The options of the start.
        job_id: The job.
        durable: Whether files are forced to the disk.

    Raises:
        ConfigurationError: There is no folder for the letters, or it is not a local one.
    """
    path = letters_path(plan, options.dead_letters, options.checkpoint_location)
    return None if path is None else JobLetters(local_folder(path, _ONLY_LOCAL, durable=durable), job_id)


def letter_writer(plan: Plan, options: RunOptions, job_id: str, *, durable: bool) -> LetterWriter:
    """Return the writer for the letters of one run of a job. The arguments and errors are those of ``job_letters``."""
    checkpoint = options.checkpoint_location
    path = None if checkpoint is None else local_folder(checkpoint, _ONLY_LOCAL).path
    return LetterWriter(job_letters(plan, options, job_id, durable=durable), plan.job_name, path)
