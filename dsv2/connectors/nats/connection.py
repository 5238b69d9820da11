"""Connections to NATS servers."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

from dsv2.base.event_loop import EventLoop
from dsv2.base.secrets import ClientOptions, OptionValue, shown_option
from dsv2.base.type_variables import T
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.connectors.client_errors import as_job_errors
from dsv2.errors import ConfigurationError

_LOG = logging.getLogger(__name__)
_OWN_OPTIONS = {"allow_reconnect": False, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.5}
_DEFAULT_OPTIONS = {"connect_timeout": 10}  # also for each step after the connection, whose failure is not retried
_SCHEMES = ("nats://", "tls://", "ws://", "wss://")


def _is_relevant(record: logging.LogRecord) -> bool:
    """Leave out what asyncio logs whenever the client closes a connection with TLS."""
    return "eof_received" not in record.getMessage()


class NatsConnection:
    """The addresses of servers, with secrets that its ``repr`` hides.

    Args:
        user: The class that connects, for errors.
        servers: The URLs of the servers of a cluster.
        options: Options of the client.
        tls: Creates the context of TLS connections. None: that of the client.
        retry_timeout: How long an unreachable server is retried.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(
        self,
        user: str,
        servers: str | Sequence[str],
        options: Mapping[str, OptionValue] | None,
        tls: Callable[[], ssl.SSLContext] | None,
        retry_timeout: timedelta,
    ) -> None:
        require_client_library("nats", "nats", user)
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        if not self._servers or not all(url.startswith(_SCHEMES) for url in self._servers):
            raise ConfigurationError(f"{user} requires URLs that begin with {', '.join(_SCHEMES)}.")
        self._options = dict(options or {})
        self._tls = tls
        self._retry_seconds = as_milliseconds(retry_timeout, "retry_timeout", at_least=1) / 1000

    def __repr__(self) -> str:
        return ", ".join(str(shown_option("url", url)) for url in self._servers)

    def run(self, what: str, call: Callable[[Any], Awaitable[T]]) -> T:
        """Return ``await call(client)`` with a ``nats.aio.client.Client``, which is opened before and closed after it.

        An error of the client is raised as ``JobError``, which begins with ``what``.
        """
        import nats

        urls = {f"url {number}": url for number, url in enumerate(self._servers)}
        secrets = ClientOptions({**self._options, **urls, "secret": self._options.get("nkeys_seed_str", "")})
        with (
            as_job_errors(f"{what} at {self!r}", secrets, (nats.errors.Error, OSError, ValueError)),
            closing(EventLoop()) as loop,
        ):
            task = loop.loop.create_task(self._call(call))
            task.add_done_callback(lambda _: loop.wake())
            loop.wait()
            return task.result()

    async def _call(self, call: Callable[[Any], Awaitable[T]]) -> T:
        import asyncio
        from asyncio.log import logger as log_of_asyncio

        from nats.aio.client import Client

        failures: list[Exception] = []

        async def failed(error: Exception) -> None:
            _LOG.warning("NATS at %r does not answer, and is tried again: %s", self, type(error).__name__)
            failures.append(error)

        log_of_asyncio.addFilter(_is_relevant)
        client = Client()
        options: dict[str, Any] = {
            **_DEFAULT_OPTIONS,
            **self._options,
            **_OWN_OPTIONS,
            "tls": self._tls and self._tls(),
            "error_cb": failed,
        }
        try:
            async with asyncio.timeout(self._retry_seconds):
                await client.connect(self._servers, **options)
        except TimeoutError as error:
            raise (failures or [error])[-1] from None
        try:
            return await call(client)
        finally:
            await client.close()
