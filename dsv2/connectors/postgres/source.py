"""``PostgresSource``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Literal, TypeVar

from dsv2.arguments import as_choice
from dsv2.connectors.options import check_at_least_one
from dsv2.connectors.postgres.change import RowChange
from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.connectors.postgres.discovery import PostgresDiscovery, PostgresEnumerator
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.split import PostgresSplit
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.sources import (
    AssignmentState,
    AssignmentStateSerializer,
    DataclassSerializer,
    Serializer,
    Source,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
    SplitEnumeratorContext,
    SupportsSplitReassignmentOnRecovery,
)
from dsv2.watermark import WatermarkDeclaration

__all__ = ("IfSlotExists", "PostgresSource", "drop_replication")

T_co = TypeVar("T_co", covariant=True)

_RETIRING_TIMEOUT = timedelta(minutes=2)
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,40}")
_USE_PROCESSING_TIME = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION


class IfSlotExists(Enum):
    """What a job that starts for the first time does with a replication slot of its name: fail, or replace it."""

    FAIL = "fail"
    REPLACE = "replace"


class PostgresSource(
    Source[RowChange[T_co], PostgresSplit, AssignmentState[PostgresSplit]],
    SupportsSplitReassignmentOnRecovery,
    Generic[T_co],
):
    """A PostgreSQL table: its rows as they are when the job first starts, then every change of them, in order.

    The snapshot is read in pieces by all subtasks, the changes by one. They come from logical decoding (a replication
    slot and a publication), so that deletions and what happens between two looks is not missed, and a micro-batch that
    is repeated reads the same again. The server needs ``wal_level = logical`` and keeps its log for a job that does not
    run: when the job is not wanted any more, call ``drop_replication``. A change carries the time of its commit as its
    timestamp; rows of the snapshot have none.
    """

    def __init__(
        self,
        conninfo: str,
        table: str,
        *,
        slot_name: str,
        decode: Callable[[dict[str, Any]], T_co],
        publication: str | None = None,
        if_slot_exists: IfSlotExists | Literal["fail", "replace"] = IfSlotExists.FAIL,
        sends_use_processing_time: bool = True,
        records_per_batch: int | None = None,
        log_bytes_per_batch: int = 64 << 20,
        retry_timeout: timedelta = timedelta(minutes=2),
    ) -> None:
        """``conninfo``: as libpq takes it; a password in it is never shown. ``table``: an ordinary table with a primary
        key, with its schema or without, in the upper and lower case of the server's catalog.

        ``slot_name``: of the replication slot, one for each job; lower-case letters, digits and underscores. The user
        needs the right to make one (REPLICATION), and that to make the copy of the table (``dsv2_snapshot_`` and the
        name of the slot) that the snapshot is read from and that is dropped when it is read. ``publication``: one that
        is there and has all of the table; without it one is made, which takes the table's owner. ``if_slot_exists``:
        what to do when a job that starts for the first time finds a slot of this name.
        ``decode``: makes a record of the values of a row, by the names of columns: ``dict`` leaves them as they are.
        ``sends_use_processing_time``: every subtask sends the flag of event time when the snapshot is over, which a
        processing-time temporal join waits for: event time is the wall clock from there on.
        ``records_per_batch``: a micro-batch has no more rows of the snapshot. ``log_bytes_per_batch``: it goes on no
        further in the server's log; a transaction is never divided. ``retry_timeout``: how long to try when the
        server does not answer.

        Raises ``ConfigurationError``; also if the client library is missing.
        """
        if _SLOT_NAME.fullmatch(slot_name) is None:
            raise ConfigurationError(
                f"slot_name is made of at most 40 lower-case letters, digits and underscores; {slot_name!r} is not."
            )
        check_at_least_one(records_per_batch=records_per_batch, log_bytes_per_batch=log_bytes_per_batch)
        connection = PostgresConnection.checked("PostgresSource", conninfo, retry_timeout)
        self._settings = ReplicationSettings(connection, table, slot_name, publication)
        self._decode = decode
        self._replace = as_choice(IfSlotExists, if_slot_exists, "if_slot_exists") is IfSlotExists.REPLACE
        self._sends_flag = sends_use_processing_time
        self._records_per_batch = records_per_batch
        self._log_bytes_per_batch = log_bytes_per_batch

    def __repr__(self) -> str:
        return f"PostgresSource({self._settings.table} at {self._settings.connection})"

    @property
    def bounded(self) -> bool:
        return False

    @property
    def record_types(self) -> Collection[type]:
        return (RowChange,)

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return (_USE_PROCESSING_TIME,) if self._sends_flag else ()

    @property
    def split_serializer(self) -> Serializer[PostgresSplit]:
        return DataclassSerializer(PostgresSplit)

    @property
    def enumerator_state_serializer(self) -> Serializer[AssignmentState[PostgresSplit]]:
        return AssignmentStateSerializer(self.split_serializer)

    def create_enumerator(
        self, ctx: SplitEnumeratorContext[PostgresSplit], restored: AssignmentState[PostgresSplit] | None, /
    ) -> SplitEnumerator[PostgresSplit, AssignmentState[PostgresSplit]]:
        from dsv2.connectors.postgres.replication import Replication

        discovery = PostgresDiscovery(
            ctx,
            restored,
            Replication(self._settings),
            replace=self._replace,
            log_bytes_per_batch=self._log_bytes_per_batch,
            at_end_of_snapshot=_USE_PROCESSING_TIME.new_watermark(True) if self._sends_flag else None,
        )
        return PostgresEnumerator(ctx, restored, discovery, self._records_per_batch)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[RowChange[T_co], PostgresSplit]:
        from dsv2.connectors.postgres.reader import PostgresReader

        return PostgresReader(self._settings, self._decode)


def drop_replication(conninfo: str, table: str, slot_name: str, publication: str | None = None) -> None:
    """Drop what a ``PostgresSource`` with these arguments has made in the database; call it when its job is retired.

    A slot that is left behind has the server keep its log until the disk is full. A ``publication`` of your own stays.
    Raises ``JobError`` if the server refuses.
    """
    connection = PostgresConnection.checked("drop_replication", conninfo, _RETIRING_TIMEOUT)
    from dsv2.connectors.postgres.replication import Replication

    replication = Replication(ReplicationSettings(connection, table, slot_name, publication))
    try:
        replication.drop()
    finally:
        replication.close()
