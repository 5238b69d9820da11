"""A database of SQLAlchemy, as a source or sink uses it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dsv2.base.secrets import HIDDEN, hide
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.sql import mysql
from dsv2.errors import ConfigurationError, JobError, SchemaError

if TYPE_CHECKING:
    import sqlalchemy as sa


class Database:
    """A database. It is opened when it is used, also in a copy in another process.

    Args:
        user: The connector, for errors.
        url: The URL of SQLAlchemy. The password in it is never shown.
        options: Arguments of the driver's ``connect``.

    Raises:
        ConfigurationError: The URL is invalid, or SQLAlchemy or the driver is not installed.
    """

    def __init__(self, user: str, url: str, options: Mapping[str, Any]) -> None:
        require_client_library("sqlalchemy", "sql", user)
        import sqlalchemy as sa

        self._url = url
        self._options = dict(options)
        try:
            parsed = sa.make_url(url)
            parsed.get_dialect().import_dbapi()
        except sa.exc.NoSuchModuleError as error:
            raise ConfigurationError(f"{user}: SQLAlchemy has no such database: {error}") from None
        except sa.exc.ArgumentError:
            form = "'dialect+driver://user:password@host/database'"
            raise ConfigurationError(f"{user}: the URL is not valid. It has the form {form}.") from None
        except ImportError as error:
            raise ConfigurationError(f"{user} requires the driver of the database: pip install {error.name}.") from None
        self._password = str(parsed.password or "")
        self._shown = parsed.render_as_string(hide_password=True)
        self.dialect = parsed.get_backend_name()
        """The kind of database, such as ``mysql``."""

    def __repr__(self) -> str:
        return self._shown

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open connections."""
        return {name: value for name, value in vars(self).items() if name not in ("engine", "packet")}

    @cached_property
    def engine(self) -> sa.Engine:
        """The engine of this process."""
        import sqlalchemy as sa

        engine = sa.create_engine(self._url, connect_args=self._options, pool_pre_ping=True, hide_parameters=True)
        if self.dialect in mysql.DIALECTS:
            sa.event.listen(engine, "connect", mysql.start_session)
        return engine

    @cached_property
    def packet(self) -> int | None:
        """The most bytes of a row; None if there is no limit."""
        import sqlalchemy as sa

        if self.dialect not in mysql.DIALECTS:
            return None
        with self.errors("Cannot read max_allowed_packet"), self.engine.connect() as opened:
            return int(opened.execute(sa.text("SELECT @@max_allowed_packet")).scalar_one())

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Raise SQLAlchemy's errors without secrets: ``SchemaError`` because of a value, otherwise ``JobError``."""
        import sqlalchemy as sa

        try:
            yield
        except sa.exc.SQLAlchemyError as error:
            secrets = [self._password, *(str(value) for value in self._options.values() if isinstance(value, str))]
            text = hide(str(error).partition("\n(Background on this error")[0], list(filter(None, secrets)))
            of_connection = isinstance(
                error, sa.exc.OperationalError | sa.exc.InterfaceError | sa.exc.InvalidRequestError
            )
            number = next(iter(getattr(getattr(error, "orig", None), "args", ())), None)
            of_value = self.dialect in mysql.DIALECTS and number in mysql.ERRORS_OF_VALUES
            kind = JobError if of_connection and not of_value else SchemaError
            raise kind(f"{what} at {self}: {text}") from (None if HIDDEN in text else error)

    def table(self, name: str, columns: Sequence[str]) -> sa.TableClause:
        """Return the table ``name`` with ``columns``, and their types.

        Raises:
            SchemaError: The table has no such column.
            JobError: There is no such table, or the database does not answer.
        """
        import sqlalchemy as sa

        schema, _, own = name.rpartition(".")
        if self.dialect == "duckdb":  # which SQLAlchemy cannot inspect
            return sa.table(own, *map(sa.column, columns), schema=schema or None)
        with self.errors(f"Cannot open table {name}"):
            try:
                found = sa.Table(own, sa.MetaData(), schema=schema or None, autoload_with=self.engine)
            except sa.exc.NoSuchTableError:
                raise JobError(f"There is no table {name} at {self}.") from None
        if unknown := [column for column in columns if column not in found.columns]:
            known = ", ".join(found.columns.keys())
            raise SchemaError(f"Table {name} at {self} has no column {unknown[0]!r}. It has {known}.")
        return found

    def for_statements(self, table: sa.TableClause) -> sa.TableClause:
        """Return ``table`` without the types that change values: SQLAlchemy rounds a DOUBLE of MySQL to ten places."""
        import sqlalchemy as sa

        if self.dialect not in mysql.DIALECTS:
            return table
        return sa.table(table.name, *(sa.column(column.name) for column in table.columns), schema=table.schema)
