"""A connection to a PostgreSQL server with retries."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

import psycopg
from psycopg import errors, sql

from dsv2.base.type_variables import T
from dsv2.connectors.client_log import ClientLog
from dsv2.connectors.postgres.adapters import ADAPTERS
from dsv2.connectors.postgres.settings import PostgresConnection, parse_table_name
from dsv2.errors import JobError

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_LOG = logging.getLogger(__name__)
_NOTICES = ClientLog("dsv2.connectors.postgres.client")
_PREPARED_AFTER = 5  # executions of a statement
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
# The text format of values and the meaning of transactions, independent of the settings of server, database and user.
_SETTINGS = b"""
SET datestyle = 'ISO, MDY'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET extra_float_digits = 1;
SET bytea_output = 'hex'; SET lc_monetary = 'C'; SET xmloption = 'content'; SET array_nulls = on;
SET client_encoding = 'UTF8'; SET standard_conforming_strings = on; SET row_security = off;
SET default_transaction_isolation = 'read committed'; SET synchronous_commit = on
"""
# Transient errors before the connection is established have no SQLSTATE, so they are recognised by their text.
_TRANSIENT_TEXTS = ("the database system is ", "too many clients", "connection slots are reserved")
_TRANSIENT = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.ObjectInUse,  # another attempt has not released the replication slot yet
    errors.DeadlockDetected,
    errors.SerializationFailure,
)


class Server:
    """A database server with one connection, which is reopened when it breaks."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._open: Connection | None = None

    def __repr__(self) -> str:
        return repr(self._connection)

    def run(self, what: str, call: Callable[[Connection], T]) -> T:
        """Run ``call`` with a connection in autocommit mode, and retry it while it fails for a transient reason.

        Args:
            what: The first part of the error message, such as "Cannot read table x".
            call: Called with the connection. It may be called several times.

        Raises:
            JobError: The error is not transient, or retries took longer than the retry timeout.
        """
        (result,) = self.stream(what, lambda connection: iter([call(connection)]))
        return result

    def stream(self, what: str, rows: Callable[[Connection], Iterator[T]]) -> Iterator[T]:
        """Yield the rows of a query, and run it again when the connection breaks.

        Args:
            what: The first part of the error message, such as "Cannot read table x".
            rows: Runs the query. It must return the same rows every time; those already yielded are skipped.

        Raises:
            JobError: The error is not transient, or retries took longer than the retry timeout.
        """
        yielded = 0
        deadline: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                for count, row in enumerate(rows(self._connected()), start=1):
                    if count > yielded:
                        yielded, deadline = count, None
                        yield row
                return
            except psycopg.Error as error:
                if deadline is None:
                    deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
                    pause = _FIRST_PAUSE_SECONDS
                self._raise_unless_transient(what, error, deadline)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def failure(self, what: str, error: psycopg.Error) -> JobError:
        """Create the ``JobError`` for ``error``, without passwords."""
        message = self._connection.redacted(str(error)).strip()
        return JobError(f"{what} ({self!r}): {type(error).__name__}: {message}.")

    def close(self) -> None:
        """Close the connection."""
        if self._open is not None:
            with contextlib.suppress(psycopg.Error):
                self._open.close()
            self._open = None

    def _connected(self) -> Connection:
        if self._open is None or self._open.closed:
            self._open = opened(self._connection)
            self._open.execute(_SETTINGS)
        return self._open

    def _raise_unless_transient(self, what: str, error: psycopg.Error, deadline: float) -> None:
        failure = self.failure(what, error)
        if not _is_transient(error) or time.monotonic() > deadline:
            raise failure from self._connection.presentable(error)
        _LOG.warning("%s Retrying.", failure)
        self.close()


def _is_transient(error: psycopg.Error) -> bool:
    if isinstance(error, _TRANSIENT):
        return True
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    message = str(error)  # the server did not answer, the connection broke, or the server refused it (FATAL)
    return "FATAL" not in message or any(text in message for text in _TRANSIENT_TEXTS)


def opened(connection: PostgresConnection, **options: Any) -> Connection:
    """Open a connection in autocommit mode. Notices of the server go to the log.

    Statements have parameters ``$1``, as ``%`` may be part of a name. ``options`` are passed to ``psycopg.connect``.
    Raises ``psycopg.Error``.
    """
    made = psycopg.connect(
        connection.conninfo,
        autocommit=True,
        cursor_factory=psycopg.RawCursor,
        context=ADAPTERS,
        prepare_threshold=_PREPARED_AFTER,
        **options,
    )
    made.server_cursor_factory = psycopg.RawServerCursor

    def log_notice(notice: errors.Diagnostic) -> None:
        severity = notice.severity_nonlocalized or ""
        level = logging.WARNING if severity == "WARNING" else logging.INFO
        _NOTICES.write(level, notice.sqlstate or severity, connection.redacted(f"{severity}: {notice.message_primary}"))

    made.add_notice_handler(log_notice)
    return made


def named(name: str) -> sql.Identifier:
    """The identifier of a table, whose name a user wrote. Raises ``ConfigurationError``."""
    return sql.Identifier(*parse_table_name(name))


def listed(names: Iterable[str]) -> sql.Composed:
    """The names of columns, separated by commas."""
    return sql.SQL(", ").join(map(sql.Identifier, names))


def statement(text: str, *parts: sql.Composable) -> sql.Composed:
    """Format ``text`` with ``parts``."""
    return sql.SQL(text).format(*parts)
