"""The table in which a ``SqlSink`` notes its micro-batches."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.mysql import VARBINARY

from dsv2.connectors.sql import mysql
from dsv2.errors import JobError
from dsv2.sinks import SinkInfo


class SqlLedger:
    """The last micro-batch of each sink, in a table of the database, which is named as ``name`` or ``schema.name``."""

    def __init__(self, name: str) -> None:
        schema, _, own = name.rpartition(".")
        exact = sa.String(500).with_variant(VARBINARY(2000), *mysql.DIALECTS)  # whose texts ignore upper case
        self._table = sa.Table(
            own,
            sa.MetaData(),
            sa.Column("sink", exact, primary_key=True),
            sa.Column("batch", sa.BigInteger, nullable=False),
            sa.Column("run", sa.String(100), nullable=False),
            schema=schema or None,
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )

    def create(self, opened: sa.Connection) -> None:
        """Create the table unless it exists."""
        opened.execute(sa.schema.CreateTable(self._table, if_not_exists=True))

    def is_written(self, opened: sa.Connection, info: SinkInfo, batch_id: int) -> bool:
        """Return whether a micro-batch was written. Raises ``JobError`` as ``SinkInfo.is_written`` does."""
        entry = self._entry(opened, info)
        return entry is not None and info.is_written(batch_id, *entry)

    def note(self, opened: sa.Connection, info: SinkInfo, batch_id: int) -> None:
        """Note that a micro-batch is written. Of two transactions that do so at once, one fails."""
        new = {"batch": batch_id, "run": info.run.run_id}
        entry = self._entry(opened, info)
        if entry is None:
            opened.execute(sa.insert(self._table).values(sink=sa.literal(info.name, sa.String), **new))
            return
        before, run = entry
        same = self._is_of(info), self._table.c.batch == before, self._table.c.run == run
        if opened.execute(sa.update(self._table).where(*same).values(new)).rowcount == 0:
            raise JobError("Another attempt has written a micro-batch of this sink at the same time.")

    def _entry(self, opened: sa.Connection, info: SinkInfo) -> tuple[int, str] | None:
        query = sa.select(self._table.c.batch, self._table.c.run).where(self._is_of(info))
        found = opened.execute(query).one_or_none()
        return None if found is None else (int(found[0]), str(found[1]))

    def _is_of(self, info: SinkInfo) -> sa.ColumnElement[bool]:
        return self._table.c.sink == sa.literal(info.name, sa.String)
