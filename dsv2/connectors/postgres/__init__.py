"""A source and a sink for PostgreSQL: ``pip install "dsv2[postgres]"``."""

from dsv2.connectors.postgres.change import ChangeKind, RowChange, UndecodedValue
from dsv2.connectors.postgres.sink import PostgresSink
from dsv2.connectors.postgres.source import IfSlotExists, PostgresSource, drop_replication
from dsv2.connectors.postgres.split import PostgresSplit

__all__ = (
    "ChangeKind",
    "IfSlotExists",
    "PostgresSink",
    "PostgresSource",
    "PostgresSplit",
    "RowChange",
    "UndecodedValue",
    "drop_replication",
)
