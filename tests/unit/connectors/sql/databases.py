"""Databases for tests of the connectors of SQL."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

import sqlalchemy as sa

DIALECTS = ("sqlite", "duckdb")


class TestDatabase:
    """A database."""

    __test__ = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sa.create_engine(url)

    @classmethod
    def of_file(cls, dialect: str) -> Self:
        """A database in a temporary file."""
        return cls(f"{dialect}:///{Path(mkdtemp()) / 'database'}")

    def run(self, statement: str, *rows: dict[str, Any]) -> None:
        """Execute a statement, once for each of ``rows`` if there are any."""
        with self.engine.begin() as opened:
            opened.execute(sa.text(statement), list(rows) or None)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the result of a query."""
        with self.engine.begin() as opened:
            return [tuple(row) for row in opened.execute(sa.text(query))]
