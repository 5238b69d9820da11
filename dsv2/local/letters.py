"""The dead letters of local jobs that nothing reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dsv2.checks.paths import local_folder
from dsv2.dead_letters.location import letters_path
from dsv2.dead_letters.replay import Replays
from dsv2.dead_letters.store import JobLetters, LetterWriter
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions

_ONLY_LOCAL = "The local runtime stores dead letters in a local folder."


def job_letters(plan: Plan, options: RunOptions, job_id: str) -> JobLetters | None:
    """Return the letters of a job; None if it has neither letters nor a folder.

    Raises:
        ConfigurationError: There is no folder for the letters, or it is not a local one.
    """
    path = letters_path(plan, options.dead_letters, options.checkpoint_location)
    return None if path is None else JobLetters(local_folder(path, _ONLY_LOCAL), job_id)


class LocalLetters:
    """Writes the letters of one run of the job ``job_id``.

    Args:
        plan: The job.
        options: The options of the start.
        job_id: The job, as sinks know it.

    Raises:
        ConfigurationError: There is no folder for the letters, or it is not a local one.
    """

    def __init__(self, plan: Plan, options: RunOptions, job_id: str) -> None:
        checkpoint = options.checkpoint_location
        path = None if checkpoint is None else local_folder(checkpoint, _ONLY_LOCAL).path
        letters = job_letters(plan, options, job_id)
        self._writer = None if letters is None else LetterWriter(letters, plan.job_name, path)

    def write(self, batch_id: int, letters: Iterable[Mapping[str, Any]]) -> None:
        """Write the letters of a micro-batch, after the sinks have it.

        Raises:
            ConfigurationError: Another checkpoint has continued the job.
        """
        if self._writer is not None:
            self._writer.write(batch_id, letters)

    def record_replays(self, replays: Replays) -> None:
        """Record for readers of the folder what was processed again. Called when the checkpoint has it, too."""
        if self._writer is not None:
            self._writer.record_replays(replays)
