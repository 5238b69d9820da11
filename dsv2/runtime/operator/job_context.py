"""What all subtasks of a job share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv2.context import RuntimeExecutionMode
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStores, in_blob
from dsv2.runtime.state.timers import BatchTime
from dsv2.watermark import WatermarkDeclaration

__all__ = ("JobContext",)


@dataclass(frozen=True, slots=True)
class JobContext:
    """Given by the runtime to each subtask. ``time`` is set anew before each micro-batch.

    ``page_stores``: where keyed state is between micro-batches.
    """

    job_name: str
    mode: RuntimeExecutionMode
    declarations: Mapping[str, WatermarkDeclaration]
    codec: Codec
    time: BatchTime
    attempt_number: int = 0
    page_stores: PageStores = in_blob
