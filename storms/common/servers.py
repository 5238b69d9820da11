"""The servers to which jobs under attack write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.kafka import KafkaBroker
from components.postgres import PostgresServer

__all__ = ("broker_and_database",)


@contextmanager
def broker_and_database(folder: Path) -> Iterator[tuple[KafkaBroker, PostgresServer]]:
    """Run both servers during the block. Raises ``MissingComponentError``."""
    folder.chmod(0o755)
    (folder / "kafka").mkdir()
    (folder / "postgres").mkdir()
    broker = KafkaBroker(folder / "kafka")
    broker.start()
    try:
        database = PostgresServer(folder / "postgres")  # created while the broker runs, so that it chooses another port
        database.start()
        try:
            yield broker, database
        finally:
            database.stop()
    finally:
        broker.stop()
