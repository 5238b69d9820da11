"""The state and the positions by which a job processes dead letters again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from dsv2.checkpoint.record import SourcePosition
from dsv2.dead_letters.replay import PendingReplay, check_replays
from dsv2.graph import Plan
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.offsets import ReplayedValue, with_replays
from dsv2.runtime.state.rows import StateRow


def with_values(
    positions: Mapping[str, SourcePosition], values: Mapping[str, Sequence[ReplayedValue]]
) -> dict[str, SourcePosition]:
    """Return the positions of sources, by uid, so that their first micro-batch also decodes ``values`` again."""
    none = SourcePosition({})  # of a source that no longer exists, which the check of replays reports
    changed = {
        uid: replace(found := positions.get(uid, none), offset=with_replays(found.offset, of_source))
        for uid, of_source in values.items()
    }
    return {**positions, **changed}


def replayed(
    plan: Plan,
    pending: PendingReplay,
    positions: Mapping[str, SourcePosition],
    ended: Collection[str],
    key: bytes | None,
) -> tuple[list[tuple[str, StateRow]], dict[str, SourcePosition]]:
    """Return the rows and the positions by which a job processes dead letters again.

    Args:
        plan: The program that starts.
        pending: The letters.
        positions: The positions of the sources, by uid.
        ended: The uids of the sources that have ended.
        key: The key of the job, if its state is signed.

    Raises:
        IncompatibleCheckpointError: The program cannot process them again.
        CorruptDataError: A letter was changed.
    """
    rows, after = pending.rows(key), with_values(positions, pending.values(key))
    offsets = {uid: position.offset for uid, position in after.items()}
    check_replays(plan, rows, TypeRegistry.of(plan), ended, offsets)
    return rows, after
