"""The servers to which jobs under attack write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from components.kafka import KafkaBroker
from components.postgres import PostgresServer
from storms.common.folders import scratch_folder

__all__ = ("ServerPair", "broker_and_database")


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


class ServerPair:
    """The servers of a storm, which run from the first call until ``stack`` is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: tuple[KafkaBroker, PostgresServer] | None = None

    def __call__(self) -> tuple[KafkaBroker, PostgresServer]:
        """Return the servers. Raises ``MissingComponentError``."""
        if self._started is None:
            self._started = self._stack.enter_context(broker_and_database(self._stack.enter_context(scratch_folder())))
        return self._started
