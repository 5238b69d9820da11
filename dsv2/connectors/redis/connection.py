"""Connections to a Redis server."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from dsv2.base.secrets import ClientOptions, OptionValue
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.client_errors import as_job_errors
from dsv2.errors import ConfigurationError
from dsv2.sinks.paths import without_password

_SECONDS_BETWEEN_ATTEMPTS = 0.5
_OWN_OPTIONS = {"decode_responses": False, "retry": None}
_LOG = logging.getLogger(__name__)
_SCHEMES = ("redis", "rediss", "unix")


class RedisConnection:
    """The address of a server, with secrets that its ``repr`` hides.

    Args:
        user: The connector, for errors.
        url: The URL, such as ``rediss://user:password@host:6379/0``.
        options: Options of the client.
        retry_timeout: How long an unreachable server is retried.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(
        self, user: str, url: str, options: Mapping[str, OptionValue] | None, retry_timeout: timedelta
    ) -> None:
        require_client_library("redis", "redis", user)
        if urlsplit(url).scheme not in _SCHEMES:
            raise ConfigurationError(f"{user} requires a URL that begins with redis://, rediss:// or unix://.")
        self._url = url
        self._options = ClientOptions(options or {})
        self._retry_seconds = as_milliseconds(retry_timeout, "retry_timeout", at_least=1) / 1000

    def __repr__(self) -> str:
        return without_password(self._url)

    @contextmanager
    def opened(self, what: str) -> Iterator[Any]:
        """Open a ``redis.Redis``. An error of the client is raised as ``JobError``, which begins with ``what``."""
        import redis

        secrets, kinds = ClientOptions({**self._options, "url": self._url}), (redis.RedisError, OSError, ValueError)
        with (
            as_job_errors(f"{what} at {self!r}", secrets, kinds),
            redis.Redis.from_url(self._url, **{**self._options, **_OWN_OPTIONS}) as client,
        ):
            self._wait_for(client)
            yield client

    def _wait_for(self, client: Any) -> None:
        from redis.exceptions import AuthenticationError, ConnectionError, TimeoutError

        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                client.ping()
                return
            except AuthenticationError:
                raise
            except (ConnectionError, TimeoutError) as error:
                if time.monotonic() + _SECONDS_BETWEEN_ATTEMPTS > deadline:
                    raise
                _LOG.warning(
                    "The Redis server at %r does not answer, and is tried again: %s", self, type(error).__name__
                )
                time.sleep(_SECONDS_BETWEEN_ATTEMPTS)
