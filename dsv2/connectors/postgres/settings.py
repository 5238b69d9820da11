"""The settings of a source or sink of PostgreSQL, and of its connection."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic

from dsv2.base.columnar import column_names
from dsv2.base.secrets import HIDDEN, hide
from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError

# The parts of a conninfo that are shown if they look valid. An unescaped password can end up in any part.
_SHOWN = {
    "host": re.compile(r"@?[\w./-]+(,[\w./-]+)*|[0-9a-fA-F:.,]+"),
    "hostaddr": re.compile(r"[0-9a-fA-F:.,]+"),
    "port": re.compile(r"[0-9,]+"),
    "dbname": re.compile(r"[\w$.-]+"),
    "user": re.compile(r"[\w$.@-]+"),
}
_URI = re.compile(r"postgres(?:ql)?://(.*)", re.DOTALL)
_UNESCAPED = re.compile(r".*/.*@|.*@.*@", re.DOTALL)
_HOW = (
    "(It is not shown because it may contain a password.) Write \"host=... dbname=... user=... password='...'\", with "
    "keywords in lower case and separated by spaces, or 'postgresql://user:password@host/dbname'. The password in a "
    "URI must be escaped: urllib.parse.quote(password, safe='')."
)


class PostgresConnection:
    """A database and how to connect to it. The repr shows no password.

    Args:
        user: The connector, for errors.
        conninfo: The connection string of libpq.
        retry_timeout: How long to retry while the server does not answer.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(self, user: str, conninfo: str, retry_timeout: timedelta) -> None:
        require_client_library("psycopg", "postgres", user)
        if not conninfo:
            raise ConfigurationError(
                f"{user} requires conninfo: 'host=... dbname=... user=...' or 'postgresql://user@host/dbname'."
            )
        self.retry_timeout_ms = as_milliseconds(retry_timeout, "retry_timeout", at_least=1)
        _check(user, conninfo)
        self.conninfo = conninfo

    def __repr__(self) -> str:
        return " ".join(f"{part.name}={part.value if part.is_shown else HIDDEN}" for part in _parts(self.conninfo))

    def redacted(self, text: str) -> str:
        """Return ``text`` with everything hidden that may be a password."""
        hidden = [
            part for part in _parts(self.conninfo) if part.is_secret or (part.name in _SHOWN and not part.is_shown)
        ]
        return hide(text, [piece for part in hidden for piece in (part.value, *part.value.split(","))])

    def presentable(self, error: Exception) -> Exception | None:
        """Return ``error`` as the cause of another error; None if it contains a secret, as tracebacks show causes."""
        return error if self.redacted(str(error)) == str(error) else None


@dataclass(frozen=True)
class _Part:
    name: str
    value: str
    is_secret: bool

    @property
    def is_shown(self) -> bool:
        pattern = _SHOWN.get(self.name)
        return pattern is not None and pattern.fullmatch(self.value) is not None


def _parts(conninfo: str) -> list[_Part]:
    """Parse ``conninfo`` with libpq, which marks secret parts itself. Raises ``psycopg.Error``."""
    from psycopg.pq import Conninfo

    return [
        _Part(option.keyword.decode(), option.val.decode(), option.dispchar == b"*")
        for option in Conninfo.parse(conninfo.encode())
        if option.val is not None
    ]


def _check(user: str, conninfo: str) -> None:
    from psycopg import Error

    uri = _URI.match(conninfo)
    if uri is not None and _UNESCAPED.match(uri.group(1)):
        raise ConfigurationError(f"{user}: conninfo contains an @ or / that must be escaped, as %40 or %2F. {_HOW}")
    unreadable = ConfigurationError(f"{user}: libpq cannot parse conninfo. {_HOW}")
    if "\0" in conninfo:  # libpq would ignore the rest
        raise unreadable
    try:
        parts = _parts(conninfo)
    except (Error, UnicodeError):
        raise unreadable from None
    for part in parts:
        if part.name in _SHOWN and not part.is_shown and (part.name == "port" or re.search("[;=]", part.value)):
            raise ConfigurationError(f"{user}: the {part.name} in conninfo is not valid. {_HOW}")


LOG_BYTES_PER_BATCH = 64 << 20

_PART = r'"(?:[^"]|"")+"|[^".][^.]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def parse_table_name(name: str) -> list[str]:
    """Parse ``name`` or ``schema.name``. Either part may be quoted as in SQL; otherwise it is taken literally.

    Raises:
        ConfigurationError: It is neither.
    """
    parsed = _NAME.fullmatch(name)
    if parsed is None:
        raise ConfigurationError(
            f"{name!r} is not the name of a table. Write name or schema.name, in the spelling of the server's catalog. "
            f'Quote a part that contains a dot or begins with a quotation mark, as in SQL: schema."a.b".'
        )
    parts = [part for part in parsed.groups() if part is not None]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


@dataclass(frozen=True)
class ReplicationSettings:
    """The replication of a table.

    Attributes:
        connection: The connection.
        table: The table, as the user wrote it.
        slot: The name of the replication slot.
        own_publication: The publication of the user, if there is one.
        replaces_slot: Whether a first start drops an existing slot instead of raising an error.
        log_bytes_per_batch: The maximum bytes of the log in a micro-batch.
    """

    connection: PostgresConnection
    table: str
    slot: str
    own_publication: str | None = None
    replaces_slot: bool = False
    log_bytes_per_batch: int = LOG_BYTES_PER_BATCH

    @property
    def publication(self) -> str:
        """The name of the publication that contains the table."""
        return self.own_publication or f"dsv2_{self.slot}"

    @property
    def copy(self) -> str:
        """The name of the table that the snapshot is read from."""
        return f"dsv2_snapshot_{self.slot}"


@dataclass(frozen=True)
class TableWriter(Generic[T]):
    """Maps records to rows.

    Attributes:
        table: The table.
        columns: The columns to write.
        row: Returns the values of ``columns`` for a record.
        key: The columns by which a row replaces an existing one; empty: rows are inserted.
        deletes: Returns whether a record deletes the row with its key instead.
    """

    table: str
    columns: tuple[str, ...]
    row: Callable[[T], Sequence[Any]]
    key: tuple[str, ...]
    deletes: Callable[[T], bool] | None

    @property
    def takes_columns(self) -> bool:
        """True if columnar records can be inserted without conversion."""
        return not self.key and (self.row is tuple or column_names(self.row) is not None)

    def fields(self, kind: type) -> Sequence[str] | None:
        """Return the fields of columnar records of ``kind`` that are the values of ``columns``; None: unknown."""
        if self.row is tuple:
            found = getattr(kind, "_fields", None) if issubclass(kind, tuple) else None
        else:
            found = column_names(self.row)
        return found if found is not None and len(found) == len(self.columns) > 1 else None
