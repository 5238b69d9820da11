"""Databases in a file, for tests of the connectors of SQL."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import sqlalchemy as sa

DIALECTS = ("sqlite", "duckdb")


class TestDatabase:
    """A database in a temporary file."""

    __test__ = False

    def __init__(self, dialect: str) -> None:
        self.url = f"{dialect}:///{Path(mkdtemp()) / 'database'}"
        self.engine = sa.create_engine(self.url)

    def run(self, statement: str, *rows: dict[str, Any]) -> None:
        """Execute a statement, once for each of ``rows`` if there are any."""
        with self.engine.begin() as opened:
            opened.execute(sa.text(statement), list(rows) or None)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the result of a query."""
        with self.engine.begin() as opened:
            return [tuple(row) for row in opened.execute(sa.text(query))]
