"""Checks before a job runs whether its program can continue from a checkpoint."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from dsv2.checkpoint import restart
from dsv2.checkpoint.description import Description, describe, essence
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.key_samples import readable_samples
from dsv2.graph import Plan
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from runtime_spark.checkpoint.manifest import Manifest, has_spark_state, layout_differences
from runtime_spark.checkpoint.notes import Notes


def continued_notes(plan: Plan, programs: Sequence[Description], notes: Notes) -> Notes:
    """Return the notes with which a program continues from a checkpoint.

    Args:
        plan: The program that starts.
        programs: The programs that wrote the state.
        notes: The notes in the checkpoint.
    """
    program = describe(plan)
    samples = readable_samples(plan, notes.keys, Codec(TypeRegistry.of(plan)))
    known = any(essence(earlier) == essence(program) for earlier in programs)
    later = notes.programs if known else [*notes.programs, program]
    return dataclasses.replace(notes, programs=later, keys=[sample for sample, _ in samples])


def restart_differences(
    plan: Plan,
    before: Manifest,
    now: Manifest,
    notes: Notes,
    types: TypeRegistry,
    in_savepoint: Sequence[Description] = (),
) -> list[Difference]:
    """List the differences that prevent a restart from the same checkpoint.

    Args:
        plan: The program that is to start.
        before: The manifest of the first start.
        now: The manifest of ``plan``.
        notes: The notes, which hold later programs.
        types: The classes of ``plan``.
        in_savepoint: The earlier programs of the savepoint with which the checkpoint began.
    """
    programs = [*in_savepoint, before["program"], *notes.programs]
    others = layout_differences(before, now)
    found = restart.restart_differences(plan, programs, now["program"], types, notes.keys, others)
    if has_spark_state(before):
        return [dataclasses.replace(difference, carried=False) for difference in found]
    return found
