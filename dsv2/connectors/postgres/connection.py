"""How to reach a database: what source and sink are told."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dsv2.connectors.client_library import require_client_library
from dsv2.connectors.options import check_at_least_one
from dsv2.errors import ConfigurationError

__all__ = ("PostgresConnection",)

_HIDDEN = "***"
_SECRETS = (
    re.compile(r"(?:^|[\s?&])(?:password|sslpassword)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s&]+))"),
    re.compile(r"://[^/@:]*:([^/@]+)@()"),
)


@dataclass(frozen=True, repr=False)
class PostgresConnection:
    """A database, and how to reach it. ``conninfo``: as libpq takes it. Shows no password.

    ``retry_timeout_ms``: how long to try again while the server does not answer.
    """

    conninfo: str
    retry_timeout_ms: int

    @staticmethod
    def checked(user: str, conninfo: str, retry_timeout_ms: int) -> PostgresConnection:
        """What ``user`` was told. Raises ``ConfigurationError``; also if the client library is missing."""
        require_client_library("psycopg", "postgres", user)
        if not conninfo:
            raise ConfigurationError(
                f"{user} needs conninfo: 'host=... dbname=... user=...' or 'postgresql://user@host/dbname'."
            )
        check_at_least_one(retry_timeout_ms=retry_timeout_ms)
        return PostgresConnection(conninfo, retry_timeout_ms)

    def __repr__(self) -> str:
        return self.redacted(self.conninfo)

    def redacted(self, text: str) -> str:
        """``text`` without the passwords of ``conninfo``."""
        for pattern in _SECRETS:
            for quoted, plain in pattern.findall(self.conninfo):
                text = text.replace(quoted or plain, _HIDDEN)
        return text
