"""The folder of a job for the dead letters that nothing reads."""

from __future__ import annotations

from dsv2.dead_letters.store import FOLDER
from dsv2.errors import ConfigurationError
from dsv2.graph import Plan


def letters_path(plan: Plan, chosen: str | None, checkpoint: str | None) -> str | None:
    """Return the folder for the letters of a job; None if it has no letters and no folder.

    Args:
        plan: The job.
        chosen: The folder that the user has chosen, or None.
        checkpoint: The checkpoint of the job, or None.

    Raises:
        ConfigurationError: The job stores letters, and there is no folder for them.
    """
    if chosen is not None:
        return chosen
    if checkpoint is not None:
        return f"{checkpoint.rstrip('/')}/{FOLDER}"
    for operator in plan.operators:
        if operator.stores_dead_letters:
            raise ConfigurationError(
                f"{operator}, defined at {operator.location}, has an error policy with dead_letter(), but nothing "
                f"reads its dead letters, and a job without a checkpoint has no folder for them. Choose one with "
                f"execute(..., dead_letters=a folder), read result.dead_letters(), or use skip()."
            )
    return None
