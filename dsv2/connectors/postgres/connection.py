"""How to reach a database: what source and sink are told."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from dsv2.arguments import as_milliseconds
from dsv2.connectors.client_library import require_client_library
from dsv2.connectors.secrets import HIDDEN, hide
from dsv2.errors import ConfigurationError

__all__ = ("PostgresConnection",)

# The parts of a conninfo that are shown, if they look as they should: a password that is not escaped ends up anywhere.
_SHOWN = {
    "host": re.compile(r"@?[\w./-]+(,[\w./-]+)*|[0-9a-fA-F:.,]+"),
    "hostaddr": re.compile(r"[0-9a-fA-F:.,]+"),
    "port": re.compile(r"[0-9,]+"),
    "dbname": re.compile(r"[\w$.-]+"),
    "user": re.compile(r"[\w$.@-]+"),
}
_URI = re.compile(r"postgres(?:ql)?://(.*)", re.DOTALL)
_TO_BE_ESCAPED = re.compile(r".*/.*@|.*@.*@", re.DOTALL)
_HOW = (
    "(It is not shown, as there may be a password in it.) Write \"host=... dbname=... user=... password='...'\", with "
    "these words in lower case and blanks between them, or 'postgresql://user:password@host/dbname'; in the latter, a "
    "password has to be escaped: urllib.parse.quote(password, safe='')."
)


@dataclass(frozen=True, repr=False)
class PostgresConnection:
    """A database, and how to reach it. ``conninfo``: as libpq takes it. Shows no password.

    ``retry_timeout_ms``: how long to try again while the server does not answer.
    """

    conninfo: str
    retry_timeout_ms: int

    @staticmethod
    def checked(user: str, conninfo: str, retry_timeout: timedelta) -> PostgresConnection:
        """What ``user`` was told. Raises ``ConfigurationError``; also if the client library is missing."""
        require_client_library("psycopg", "postgres", user)
        if not conninfo:
            raise ConfigurationError(
                f"{user} needs conninfo: 'host=... dbname=... user=...' or 'postgresql://user@host/dbname'."
            )
        retry_timeout_ms = as_milliseconds(retry_timeout, "retry_timeout", at_least=1)
        _check(user, conninfo)
        return PostgresConnection(conninfo, retry_timeout_ms)

    def __repr__(self) -> str:
        parts = _parts(self.conninfo)
        return " ".join(f"{part.name}={part.value if part.is_shown else HIDDEN}" for part in parts)

    def redacted(self, text: str) -> str:
        """``text``, which the client or the server may have written, without what may be a password."""
        hidden = [
            part for part in _parts(self.conninfo) if part.is_secret or (part.name in _SHOWN and not part.is_shown)
        ]
        return hide(text, [piece for part in hidden for piece in (part.value, *part.value.split(","))])

    def presentable(self, error: Exception) -> Exception | None:
        """``error`` of the client as the cause of ours; None if it has a secret in it, as tracebacks show causes."""
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
    """What libpq finds in ``conninfo``; it knows itself what is secret. Raises ``psycopg.Error``."""
    from psycopg.pq import Conninfo

    return [
        _Part(option.keyword.decode(), option.val.decode(), option.dispchar == b"*")
        for option in Conninfo.parse(conninfo.encode())
        if option.val is not None
    ]


def _check(user: str, conninfo: str) -> None:
    from psycopg import Error

    uri = _URI.match(conninfo)
    if uri is not None and _TO_BE_ESCAPED.match(uri.group(1)):
        raise ConfigurationError(
            f"{user}: there is an @ or / in conninfo that has to be escaped, as %40 or %2F. {_HOW}"
        )
    unreadable = ConfigurationError(f"{user}: libpq cannot read conninfo. {_HOW}")
    if "\0" in conninfo:  # it would read no further
        raise unreadable
    try:
        parts = _parts(conninfo)
    except (Error, UnicodeError):
        raise unreadable from None
    for part in parts:
        if part.name in _SHOWN and not part.is_shown and (part.name == "port" or re.search("[;=]", part.value)):
            raise ConfigurationError(f"{user}: the {part.name} in conninfo is not one. {_HOW}")
