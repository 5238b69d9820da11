"""A Delta table, as its sink uses it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake import Field as DeltaField
from deltalake.exceptions import CommitFailedError

from dsv2.base.secrets import ClientOptions
from dsv2.connectors.delta.errors import named_errors
from dsv2.connectors.lakehouse.columns import Field
from dsv2.connectors.lakehouse.rows import Changes, aligned
from dsv2.connectors.lakehouse.sink import ConflictError, Written
from dsv2.errors import JobError

_RUN = "/run"  # at the end of the application whose transactions are runs
_DELETES = "dsv2_deletes"
_FINAL = ("Unsupported table features", "is append-only")  # in errors that are no conflicts


class OpenDeltaTable:
    """An open table (``OpenTable``)."""

    def __init__(
        self,
        path: str,
        schema: dict[str, Any],
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        options: ClientOptions,
    ) -> None:
        """Open the table at ``path``, or create it with the other arguments. Raises ``JobError``."""
        with named_errors(f"Cannot open the table {path}", options):
            self._table = DeltaTable.create(
                path,
                Schema.from_json(json.dumps(schema)),
                mode="ignore",
                partition_by=list(partition_by) or None,
                configuration=dict(properties) or None,
                storage_options={name: str(value) for name, value in options.items()} or None,
            )
        self._options = options

    @property
    def columns(self) -> Sequence[Field]:
        """Its columns, as Spark writes them in JSON."""
        fields: list[Field] = json.loads(self._table.schema().to_json())["fields"]
        return fields

    @property
    def partitions(self) -> Sequence[str]:
        """The columns that divide it."""
        return self._table.metadata().partition_columns

    def refresh(self) -> None:
        """Read its last version."""
        with named_errors("Cannot read the table", self._options):
            self._table.update_incremental()

    def add_columns(self, columns: Sequence[Field]) -> None:
        """Add columns."""
        with named_errors("Cannot add columns to the table", self._options):
            self._table.alter.add_columns([DeltaField.from_json(json.dumps(column)) for column in columns])

    def written(self, sink: str) -> Written | None:
        """Return the last micro-batch of a sink; None if it has none."""
        batch_id, run = map(self._table.transaction_version, (sink, sink + _RUN))
        return None if batch_id is None or run is None else Written(batch_id, run)

    def commit(self, changes: Changes, key: Sequence[str], sink: str, written: Written) -> None:
        """Commit changes to the version that was read last, with ``written``. Raises ``ConflictError``."""
        transactions = [Transaction(sink, written.batch_id), Transaction(sink + _RUN, written.run)]
        properties = CommitProperties(app_transactions=transactions)
        try:
            with named_errors("Cannot write the table", self._options):
                if key:
                    self._merge(changes, key, properties)
                else:
                    rows = aligned(changes.rows, self._schema)
                    write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except CommitFailedError as error:
            text = self._options.redacted(f"Cannot write the table: {error}")
            if any(reason in text for reason in _FINAL):
                raise JobError(text) from self._options.presentable(error)
            raise ConflictError(text) from error

    def merge_small_files(self) -> None:
        """Merge small files of the version that was read last. Raises ``ConflictError``."""
        try:
            with named_errors("Cannot merge the files of the table", self._options):
                self._table.optimize.compact()
        except CommitFailedError as error:
            raise ConflictError(self._options.redacted(str(error))) from error

    @property
    def _schema(self) -> pa.Schema:
        return pa.schema(self._table.schema().to_arrow())

    def _merge(self, changes: Changes, key: Sequence[str], properties: CommitProperties) -> None:
        rows, deleted = (aligned(part, self._schema) for part in changes)
        flagged = [
            part.append_column(_DELETES, pa.array([deletes] * len(part), pa.bool_()))
            for part, deletes in ((rows, False), (deleted, True))
        ]
        row = {name: f"s.{_quoted(name)}" for name in self._schema.names}
        merger = self._table.merge(
            pa.concat_tables(flagged),
            " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in key),
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
        )
        merger = merger.when_matched_delete(f"s.{_DELETES}").when_matched_update(row)
        merger.when_not_matched_insert(row, f"NOT s.{_DELETES}").execute()


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'
