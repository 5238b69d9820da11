"""Which sink of which job is written."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("SinkInfo",)


@dataclass(frozen=True, slots=True)
class SinkInfo:
    """Which sink of which job is written.

    ``job_id``: the same in all runs from one checkpoint, another one for every other checkpoint. ``uid``: the sink's,
    unique in its job. ``parallelism``: the number of its subtasks; a later run may have another.
    """

    job_id: str
    uid: str
    parallelism: int
