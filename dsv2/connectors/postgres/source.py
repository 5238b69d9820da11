"""``PostgresSource``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from contextlib import closing
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal

from dsv2.base.record_position import Offset, SplitName
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_choice, check_at_least_one
from dsv2.connectors.postgres.change import RowChange, UndecodedValue
from dsv2.connectors.postgres.settings import (
    LOG_BYTES_PER_BATCH,
    PostgresConnection,
    ReplicationSettings,
    parse_table_name,
)
from dsv2.connectors.postgres.split import LOG, PostgresSplit, lsn_text, parse_lsn
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.sources import (
    AssigningSource,
    AssignmentState,
    DataclassSerializer,
    RoundRobinSplitAssigner,
    SourceReader,
    SourceReaderContext,
    SplitBatch,
    SplitEnumeratorContext,
)
from dsv2.watermark import WatermarkDeclaration

if TYPE_CHECKING:
    from dsv2.connectors.postgres.change_decoder import ChangeDecoder
    from dsv2.connectors.postgres.discovery import PostgresDiscovery


_LSN = re.compile(r"[0-9A-Fa-f]+/[0-9A-Fa-f]+")

_RETIRING_TIMEOUT = timedelta(minutes=2)
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,40}")
_USE_PROCESSING_TIME = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION


class IfSlotExists(Enum):
    """The reaction of a first start to an existing replication slot of the same name: fail, or replace the slot."""

    FAIL = "fail"
    REPLACE = "replace"


class PostgresSource(AssigningSource[RowChange[T_co], PostgresSplit], Generic[T_co]):
    """Reads a PostgreSQL table: a snapshot of its rows when the job first starts, then all changes in order.

    All subtasks read the snapshot in parallel, and one subtask reads the changes. The changes come from logical
    decoding (a replication slot and a publication). So none is missed, deletions are included, and a repeated
    micro-batch reads the same changes. The timestamp of a change is the time of its commit; rows of the snapshot have
    no timestamp.

    The server requires ``wal_level = logical``. It retains its log while the job is stopped: call ``drop_replication``
    when the job is retired.
    """

    bounded = False
    record_types = (RowChange, UndecodedValue)
    split_serializer = DataclassSerializer(PostgresSplit)
    assigner = RoundRobinSplitAssigner()
    dsv2_refuses_samples = "It would create the replication slot, from which the job starts. Query the table instead."

    def __init__(
        self,
        conninfo: str,
        table: str,
        *,
        slot_name: str,
        decode: Callable[[dict[str, Any]], T_co],
        text_columns: Collection[str] = (),
        publication: str | None = None,
        if_slot_exists: IfSlotExists | Literal["fail", "replace"] = IfSlotExists.FAIL,
        sends_use_processing_time: bool = True,
        records_per_batch: int | None = None,
        log_bytes_per_batch: int = LOG_BYTES_PER_BATCH,
        retry_timeout: timedelta = timedelta(minutes=2),
    ) -> None:
        """Create the source.

        The database user requires the REPLICATION privilege to create the slot, and the privilege to create the copy of
        the table from which the snapshot is read. The copy is named ``dsv2_snapshot_<slot_name>`` and dropped when it
        has been read.

        Args:
            conninfo: The connection string of libpq. A password in it is never shown.
            table: An ordinary table with a primary key, as ``name`` or ``schema.name``, in the spelling of the server's
                catalog. A name with a dot is quoted as in SQL: ``'schema."a.b"'``.
            slot_name: The name of the replication slot, unique per job: at most 40 lower-case letters, digits and
                underscores.
            decode: Creates the record from a row, a dict by column name. ``dict`` keeps the row.
            text_columns: The names of columns that ``decode`` receives as the texts that the server writes. For columns
                with values that equal no Python value, such as ``infinity``.
            publication: An existing publication that contains the whole table. None: the source creates one, which
                requires the owner of the table.
            if_slot_exists: The reaction of a first start to an existing slot of this name: ``"fail"`` or ``"replace"``.
            sends_use_processing_time: Whether every subtask emits the flag watermark of event time after the snapshot.
                From then on, event time is the wall clock. A processing-time temporal join waits for this flag.
            records_per_batch: The maximum number of snapshot rows in a micro-batch. None: no limit.
            log_bytes_per_batch: The maximum bytes of the server's log in a micro-batch. A transaction is never split.
            retry_timeout: How long to retry while the server does not answer.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        if _SLOT_NAME.fullmatch(slot_name) is None:
            raise ConfigurationError(
                f"slot_name must consist of at most 40 lower-case letters, digits and underscores, got {slot_name!r}."
            )
        if isinstance(text_columns, str):
            raise ConfigurationError(f"text_columns must be a list of names, got {text_columns!r}.")
        check_at_least_one(records_per_batch=records_per_batch, log_bytes_per_batch=log_bytes_per_batch)
        parse_table_name(table)
        connection = PostgresConnection("PostgresSource", conninfo, retry_timeout)
        replaces = as_choice(IfSlotExists, if_slot_exists, "if_slot_exists") is IfSlotExists.REPLACE
        self._settings = ReplicationSettings(connection, table, slot_name, publication, replaces, log_bytes_per_batch)
        self._decode = decode
        self._text_columns = frozenset(text_columns)
        self._sends_flag = sends_use_processing_time
        self.limit_per_batch = records_per_batch

    @property
    def dsv2_why_rows(self) -> str | None:
        return "changes of rows have no column type"

    def __repr__(self) -> str:
        return f"PostgresSource({self._settings.table} at {self._settings.connection})"

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return (_USE_PROCESSING_TIME,) if self._sends_flag else ()

    def decode_again(self, value: RowChange[dict[str, Any]], split: SplitName, /) -> SplitBatch[RowChange[T_co]]:
        return SplitBatch([value], self._decoder().decoded_again)

    def describe_position(self, split: PostgresSplit, /) -> str:
        return lsn_text(split.position) if split.name == LOG else str(split.position)

    def has_read(self, split: PostgresSplit, offset: Offset, /) -> bool:
        if split.name != LOG:
            return isinstance(offset, int) and offset <= split.position
        lsn = _LSN.match(str(offset))
        return lsn is not None and parse_lsn(lsn.group()) < split.position

    def create_discovery(
        self, ctx: SplitEnumeratorContext[PostgresSplit], restored: AssignmentState[PostgresSplit] | None, /
    ) -> PostgresDiscovery:
        from dsv2.connectors.postgres.discovery import PostgresDiscovery

        flag = _USE_PROCESSING_TIME.new_watermark(True) if self._sends_flag else None
        return PostgresDiscovery(ctx, restored, self._settings, flag)

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[RowChange[T_co], PostgresSplit]:
        from dsv2.connectors.postgres.reader import PostgresReader

        return PostgresReader(self._settings, self._decoder())

    def _decoder(self) -> ChangeDecoder[T_co]:
        from dsv2.connectors.postgres.change_decoder import ChangeDecoder

        return ChangeDecoder(self._settings.table, self._decode, self._text_columns)


def drop_replication(conninfo: str, table: str, slot_name: str, publication: str | None = None) -> None:
    """Drop the database objects of a ``PostgresSource``. Call it when the job is retired.

    Otherwise the server retains its log for the slot until the disk is full.

    Args:
        conninfo: As passed to the source.
        table: As passed to the source.
        slot_name: As passed to the source.
        publication: As passed to the source. Such a publication is kept.

    Raises:
        JobError: The server reports an error or does not answer.
    """
    connection = PostgresConnection("drop_replication", conninfo, _RETIRING_TIMEOUT)
    from dsv2.connectors.postgres.replication import Replication

    with closing(Replication(ReplicationSettings(connection, table, slot_name, publication))) as replication:
        replication.drop()
