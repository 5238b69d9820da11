"""Records in a checkpoint where a job has its state and its offsets, for savepoints taken without the program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_existing, write_document
from dsv2.graph import Plan
from runtime_spark.checkpoint.spark_logs import offsets_of
from runtime_spark.frames.layout import Layout

_NAME = "dsv2/placement.json"

SourceStreams = tuple[str, int]
"""The uid of a source, and the number of Spark's streams that it consists of."""

NO_SOURCE = ""
"""In place of a uid: streams that belong to no source."""


@dataclass(frozen=True)
class Placement:
    """The place of a job's state and offsets.

    Attributes:
        slots: The slot of each subtask, by the uid of the operator at the head of its chain.
        streams: The sources in the order of Spark's offset log.
    """

    slots: Mapping[str, Sequence[int]]
    streams: Sequence[SourceStreams]

    @staticmethod
    def of(plan: Plan, layout: Layout, streams: Sequence[SourceStreams]) -> Placement:
        """Return the placement of a job. ``streams``: Its sources, in the order in which the query reads them."""
        heads = [plan.operators[head] for head in plan.chains]
        return Placement({head.uid: layout.slots_of(head) for head in heads}, list(streams))

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        """slot -> (uid, subtask)."""
        return {slot: (uid, subtask) for uid, slots in self.slots.items() for subtask, slot in enumerate(slots)}

    def write(self, checkpoint: Folder) -> None:
        """Write it before a run begins."""
        write_document(checkpoint, _NAME, self)

    @staticmethod
    def read(checkpoint: Folder) -> Placement:
        """Read the placement of the last run.

        Raises:
            CorruptDataError: The file is damaged or missing.
        """
        remedy = "Start the job once from this checkpoint, which writes the file again, and stop it with a savepoint."
        return read_existing(checkpoint, _NAME, Placement, remedy)


def positions_at(checkpoint: Folder, placement: Placement, batch_id: int) -> dict[str, dict[str, Any]]:
    """Return the offsets of the sources after a micro-batch, by uid, as Spark has logged them.

    Raises:
        CorruptDataError: A file is damaged or missing.
    """
    lines = iter(offsets_of(checkpoint, batch_id))
    positions = {}
    for uid, count in placement.streams:
        offset = _offset([next(lines, None) for _ in range(count)])
        if offset is not None and uid != NO_SOURCE:
            positions[uid] = offset
    return positions


def _offset(lines: Sequence[str | None]) -> dict[str, Any] | None:
    """Return the offset of a source; None if it has not begun.

    A streaming DataFrame has the offsets of its streams, and one of the stream that opens its channels.
    """
    *streams, own = lines
    offset: dict[str, Any] | None = None if own is None else json.loads(own)
    if not streams or offset is None:
        return offset
    return {**offset, "streams": [None if line is None else json.loads(line) for line in streams]}
