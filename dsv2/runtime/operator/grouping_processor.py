"""Passes the records of one key to a function together."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from dsv2.graph import KeySelector
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.collector import CurrentTimestamp
from dsv2.runtime.operator.processors import KeyedProcessor, RecordCallback
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState
from dsv2.spi import refuse_returned

_WORTHWHILE = 2
"""Records of a key, on average. With fewer, grouping takes longer than it saves."""
_BATCHES_BETWEEN_TRIALS = 15


class GroupingProcessor(KeyedProcessor):
    """Groups the records between two control elements of a channel by key, for a function with ``process_records``.

    Records with timestamps, which output inherits, are processed one by one, and so are records of the operator chained
    upstream. If most keys have a single record, so are those of the next batches.
    """

    takes_whole_batches = True

    def __init__(
        self,
        callback: RecordCallback,
        current: CurrentTimestamp,
        select: KeySelector,
        store: PagedKeyedStore,
        partition: PartitionState,
        group_callback: RecordCallback,
    ) -> None:
        """``group_callback`` is called with all records of a key instead of ``callback``."""
        super().__init__(callback, current, select, store, partition)
        self._group_callback = group_callback
        self._one_by_one = 0

    def process(self, batch: RecordBatch[Any]) -> None:
        if self._one_by_one > 0 or batch.timestamps is not None:
            self._one_by_one -= 1
            super().process(batch)
            return
        groups = self._grouped(batch)
        if len(batch) < _WORTHWHILE * len(groups):
            self._one_by_one = _BATCHES_BETWEEN_TRIALS
        self._process_groups(groups)

    def _grouped(self, batch: RecordBatch[Any]) -> dict[Any, list[Any]]:
        """The records by key, in the order in which the keys first occur."""
        groups = defaultdict[Any, list[Any]](list)
        select = self._select
        record: Any = None
        try:
            for record in batch.rows():
                groups[select(record)].append(record)
        except BaseException as error:
            self._callback.fail(error, record, NO_KEY)
        return groups

    def _process_groups(self, groups: dict[Any, list[Any]]) -> None:
        process, output, ctx = self._group_callback.process, self._group_callback.output, self._group_callback.ctx
        touched, touch, partition = self._store.touched, self._store.touch, self._partition
        records: list[Any] = []
        key = NO_KEY
        try:
            for selected, records in groups.items():
                key = NO_KEY
                if selected not in touched:
                    touch(selected)
                partition.key = key = selected
                returned = process(records, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            self._group_callback.fail(error, records[0] if key is NO_KEY else records, key)
        finally:
            partition.key = NO_KEY
