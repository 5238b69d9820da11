"""The services of the runtime for keyed state in columns, which ``dsv2.arrow`` implements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from dsv2.base.columnar import column_names
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStores
from dsv2.runtime.state.timers import BatchTime
from dsv2.watermark.event_time import EventTimeOfInputs


class JobServices(Protocol):
    """The services that the subtasks of a job share."""

    @property
    def codec(self) -> Codec:
        """Serializes keys."""

    @property
    def time(self) -> BatchTime:
        """The time of the micro-batch."""


@dataclass(frozen=True, slots=True)
class ColumnsEnvironment:
    """The place of a function on tables.

    Attributes:
        keyed: Whether its stream is partitioned by key.
        key_names: The fields that the key selector reads; None if they are unknown.
        subtask: The index of the subtask.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        codec: Serializes keys.
        stores: Creates the stores of pages.
        owner: Names the state in error messages.
        time: The time of the micro-batch.
        event_time: The event time of the operator.
    """

    keyed: bool
    key_names: Sequence[str] | None
    subtask: int
    parallelism: int
    max_parallelism: int
    codec: Codec
    stores: PageStores
    owner: str
    time: BatchTime
    event_time: EventTimeOfInputs

    @staticmethod
    def of(
        operator: Operator,
        subtask: int,
        job: JobServices,
        stores: PageStores,
        owner: str,
        event_time: EventTimeOfInputs,
    ) -> ColumnsEnvironment:
        """Return the environment of a subtask of ``operator``. The other arguments are attributes."""
        (select, *_) = operator.input_keys
        names = None if select is None else column_names(select)
        of_operator = (operator.keyed, names, subtask, operator.parallelism, operator.max_parallelism)
        return ColumnsEnvironment(*of_operator, job.codec, stores, owner, job.time, event_time)
