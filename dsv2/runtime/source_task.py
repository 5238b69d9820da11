"""One subtask of a source: routes the records that were read to the channels of its edges."""

from __future__ import annotations

from typing import Any

from dsv2.graph import Operator, Plan
from dsv2.runtime.frames import END, MAX_FRAME_RECORDS, START, Emit
from dsv2.runtime.outputs import EdgeOutput

__all__ = ("SourceTask",)

_PIECE = 1024


class SourceTask:
    """Subtask ``index`` of ``source``. Keeps no state but the round of its edges: sources repeat themselves."""

    def __init__(self, plan: Plan, source: Operator, index: int, emit: Emit) -> None:
        self._emit = emit
        self._edges = [EdgeOutput(plan, edge, index) for edge in plan.edges_out_of[source.id]]

    def start(self) -> None:
        """Tell downstream that there is something here; at the very beginning of the job."""
        self._control(START)

    def send(self, records: list[Any], position: int) -> None:
        """Route ``records``, of which the first is number ``position`` of this subtask."""
        for edge in self._edges:
            edge.seek(position)
        for start in range(0, len(records), _PIECE):
            piece = records[start : start + _PIECE]
            for edge in self._edges:
                edge.collect_all(piece, None)
                edge.flush(self._emit, MAX_FRAME_RECORDS - _PIECE)

    def end(self) -> None:
        """Tell downstream that nothing more will come."""
        self._control(END)

    def flush(self) -> None:
        """Send what is still held back."""
        for edge in self._edges:
            edge.flush(self._emit)

    def _control(self, kind: int) -> None:
        for edge in self._edges:
            edge.control(kind, "", 0)
