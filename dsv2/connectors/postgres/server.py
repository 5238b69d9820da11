"""Asking the server, again and again while it does not answer."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg import errors, sql

from dsv2.connectors.client_log import ClientLog
from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.errors import JobError

__all__ = ("Connection", "Server", "named", "opened", "statement")

T = TypeVar("T")
Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

_LOG = logging.getLogger(__name__)
_NOTICES = ClientLog("dsv2.connectors.postgres.client")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 5.0
# How values are written as text, whatever the server is set to: the same from a table as from the log.
_SETTINGS = b"""
SET datestyle = 'ISO'; SET intervalstyle = 'postgres'; SET timezone = 'UTC'; SET extra_float_digits = 1;
SET client_encoding = 'UTF8'; SET row_security = off
"""
# What a server says that will answer soon, in words: there is no code for it before one is connected.
_SOON = ("the database system is ", "too many clients", "connection slots are reserved")
_TRANSIENT = (
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
    errors.TooManyConnections,
    errors.ObjectInUse,  # a replication slot that another attempt has not let go yet
    errors.DeadlockDetected,
    errors.SerializationFailure,
)


class Server:
    """A database server, and one connection to it that is made anew when it breaks."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection
        self._open: Connection | None = None

    def __repr__(self) -> str:
        return repr(self._connection)

    def ask(self, what: str, call: Callable[[Connection], T]) -> T:
        """``call`` with a connection on which every statement commits by itself; again while it fails for a reason
        that may pass. Raises ``JobError``, which says ``what`` was impossible."""
        deadline = time.monotonic() + self._connection.retry_timeout_ms / 1000
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return call(self._connected())
            except psycopg.Error as error:
                self._raise_unless_transient(what, error, deadline)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def stream(self, what: str, rows: Callable[[Connection], Iterator[T]]) -> Iterator[T]:
        """What ``rows`` yields, which must be the same at each call: it is called again when the connection breaks, and
        what was there before is left out. Raises ``JobError``."""
        seen = 0
        deadline: float | None = None
        while True:
            passed = 0
            try:
                for row in self.ask(what, rows):
                    passed += 1
                    if passed > seen:
                        seen, deadline = passed, None
                        yield row
                return
            except psycopg.Error as error:
                deadline = deadline or time.monotonic() + self._connection.retry_timeout_ms / 1000
                self._raise_unless_transient(what, error, deadline)
            time.sleep(_FIRST_PAUSE_SECONDS)

    def failure(self, what: str, error: psycopg.Error) -> JobError:
        """What to tell the user about ``error``, without passwords."""
        told = self._connection.redacted(str(error)).strip()
        return JobError(f"{what} ({self!r}): {type(error).__name__}: {told}.")

    def close(self) -> None:
        """Let go of the connection."""
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
        _LOG.warning("%s Trying again.", failure)
        self.close()


def _is_transient(error: psycopg.Error) -> bool:
    if isinstance(error, _TRANSIENT):
        return True
    if not isinstance(error, psycopg.OperationalError) or error.sqlstate is not None:
        return False
    told = str(error)  # no connection, or a broken one: nobody there, or a server that says no
    return "FATAL" not in told or any(words in told for words in _SOON)


def opened(connection: PostgresConnection, **options: Any) -> Connection:
    """A new connection on which every statement commits by itself; what the server remarks goes to the log.

    ``options``: more of ``psycopg.connect``. Raises ``psycopg.Error``.
    """
    made = psycopg.connect(connection.conninfo, autocommit=True, **options)

    def log_notice(notice: errors.Diagnostic) -> None:
        severity = notice.severity_nonlocalized or ""
        level = logging.WARNING if severity == "WARNING" else logging.INFO
        _NOTICES.write(level, notice.sqlstate or severity, connection.redacted(f"{severity}: {notice.message_primary}"))

    made.add_notice_handler(log_notice)
    return made


def named(name: str) -> sql.Identifier:
    """The table called ``name``, with its schema or without, as it stands in the server's catalog."""
    return sql.Identifier(*name.split("."))


def statement(text: str, *parts: sql.Composable) -> sql.Composed:
    """``text`` with ``parts`` in its braces."""
    return sql.SQL(text).format(*parts)
