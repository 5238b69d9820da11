"""Checks before a job runs whether its program can continue from a checkpoint."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sequence

from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.graph import Operator, Plan
from dsv2.program.description import Description, essence
from dsv2.program.difference import Difference, listed
from dsv2.program.differences import differences
from dsv2.program.key_samples import changed_keys, readable_samples
from dsv2.program.operator_differences import at
from dsv2.program.stored_classes import unreadable_classes
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from runtime_spark.manifest import Manifest, has_spark_state, layout_differences
from runtime_spark.notes import Notes

__all__ = ("check_restart", "refuse_or_warn_of_dropped", "restart_differences")


def check_restart(
    checkpoint: str,
    plan: Plan,
    before: Manifest,
    now: Manifest,
    notes: Notes,
    types: TypeRegistry,
    in_savepoint: Sequence[Description] = (),
) -> Notes:
    """Compare ``now``, the manifest of ``plan``, with the programs that wrote the state.

    Args:
        checkpoint: Names the checkpoint in errors.
        plan: The program that is to start.
        before: The manifest of the first start.
        now: The manifest of ``plan``.
        notes: The notes, which hold later programs.
        types: The classes of ``plan``.
        in_savepoint: The earlier programs of the savepoint with which the checkpoint began.

    Returns:
        The notes to continue with.

    Raises:
        IncompatibleCheckpointError: The program cannot continue; the message lists every difference.
    """
    programs, program = [*in_savepoint, before["program"], *notes.programs], now["program"]
    if found := restart_differences(plan, before, now, notes, types, in_savepoint):
        raise IncompatibleCheckpointError(
            f"This program cannot continue from the checkpoint {checkpoint}:\n{listed(found)}\n{_ways_out(found)}"
        )
    samples = readable_samples(plan, notes.keys, Codec(types))
    known = any(essence(earlier) == essence(program) for earlier in programs)
    programs = notes.programs if known else [*notes.programs, program]
    return dataclasses.replace(notes, programs=programs, keys=[sample for sample, _ in samples])


def restart_differences(
    plan: Plan,
    before: Manifest,
    now: Manifest,
    notes: Notes,
    types: TypeRegistry,
    in_savepoint: Sequence[Description] = (),
) -> list[Difference]:
    """List the differences that prevent a restart from the same checkpoint. Parameters: ``check_restart``."""
    programs, program = [*in_savepoint, before["program"], *notes.programs], now["program"]
    found = list(dict.fromkeys(change for earlier in programs for change in differences(earlier, program)))
    found += layout_differences(before, now)
    found += unreadable_classes(programs, program, types)
    found += changed_keys(plan, readable_samples(plan, notes.keys, Codec(types)))
    if has_spark_state(before):
        return [dataclasses.replace(difference, carried=False) for difference in found]
    return found


def _ways_out(found: Sequence[Difference]) -> str:
    if all(difference.carried for difference in found):
        return (
            "Undo the changes, or start with on_change='migrate', which takes a savepoint of this checkpoint and "
            "continues with it."
        )
    return "Undo the changes that a savepoint does not carry, or start from a new checkpoint_location with empty state."


def refuse_or_warn_of_dropped(checkpoint: str, dropped: list[tuple[Operator, str]], *, allowed: bool) -> None:
    """Warn about each dropped state, at the line that created the operator.

    Raises:
        IncompatibleCheckpointError: State is dropped, but this is not ``allowed``.
    """
    texts = [
        f"{at(operator.uid, operator.location)}: the checkpoint holds {what}, which the program no longer uses. If it "
        f"was renamed, the new name begins empty; change it back to the old name"
        for operator, what in dropped
    ]
    if texts and not allowed:
        lines = "\n".join(f"  - {text}" for text in texts)
        raise IncompatibleCheckpointError(
            f"The program does not restore all state of the checkpoint {checkpoint}:\n{lines}\n"
            f"To drop that state, start with allow_dropped_state=True."
        )
    for (operator, _), text in zip(dropped, texts, strict=True):
        file, _, line = operator.location.rpartition(":")
        warnings.warn_explicit(f"{checkpoint}: {text}.", DroppedStateWarning, file, int(line))
