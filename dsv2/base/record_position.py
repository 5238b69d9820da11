"""The position of a record in its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

SplitName: TypeAlias = int | str
"""The number or name of a split, as errors and ``skip_records`` name it."""

Offset: TypeAlias = int | str
"""The place of a record in its split, as errors and ``skip_records`` name it."""


@dataclass(frozen=True)
class RecordPosition:
    """The position of a record in its source, in the form that ``execute(..., skip_records=...)`` takes.

    Attributes:
        source: The uid of the source.
        split: The partition, file or other split; 0 for sources without splits. ``docs/errors.md`` has a table.
        offset: The offset, line, row or index in the split.
    """

    source: str
    split: SplitName
    offset: Offset

    def __str__(self) -> str:
        return f"source {self.source!r}, split {self.split!r}, offset {self.offset!r}"
