"""Checks before a job runs whether its program can continue from a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dsv2.graph import Plan
from dsv2.program import restart
from dsv2.program.description import Description, essence
from dsv2.program.difference import Difference
from dsv2.program.key_samples import readable_samples
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from runtime_spark.manifest import Manifest, has_spark_state, layout_differences
from runtime_spark.notes import Notes

__all__ = ("check_restart", "restart_differences")


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
        raise restart.refusal(checkpoint, found)
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
    programs = [*in_savepoint, before["program"], *notes.programs]
    others = layout_differences(before, now)
    found = restart.restart_differences(plan, programs, now["program"], types, notes.keys, others)
    if has_spark_state(before):
        return [dataclasses.replace(difference, carried=False) for difference in found]
    return found
