"""Positions of sources that also decode values of dead letters again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dsv2.runtime.sources.offsets import ReplayedValue, with_replays
from dsv2.savepoint.metadata import SourcePosition

__all__ = ("with_values",)


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
