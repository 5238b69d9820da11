"""Connections to an MQTT broker."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from dsv2.base.secrets import ClientOptions
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, JobError
from dsv2.sinks.paths import without_password

_LOG = logging.getLogger(__name__)
RECEIVE_MAXIMUM = 65_535  # of MQTT
_PORTS = {"mqtt": 1883, "mqtts": 8883}
_SECONDS = 30
_SECONDS_BETWEEN_ATTEMPTS = 0.5


class MqttConnection:
    """The address of a broker, with a password that its ``repr`` hides.

    Args:
        user: The class that connects, for errors.
        url: The URL, such as ``mqtts://user:password@host:8883``.
        tls: Creates the context of TLS connections. None: ``ssl.create_default_context``.
        retry_timeout: How long an unreachable broker is retried.

    Raises:
        ConfigurationError: An argument is invalid, or the client library is not installed.
    """

    def __init__(self, user: str, url: str, tls: Callable[[], ssl.SSLContext] | None, retry_timeout: timedelta) -> None:
        require_client_library("paho.mqtt", "mqtt", user)
        self._url = url
        self._address = urlsplit(url)
        if self._address.scheme not in _PORTS or not self._address.hostname:
            raise ConfigurationError(f"{user} requires a URL that begins with mqtt:// or mqtts://.")
        self._tls = tls or ssl.create_default_context
        self._retry_seconds = as_milliseconds(retry_timeout, "retry_timeout", at_least=1) / 1000

    def __repr__(self) -> str:
        return without_password(self._url)

    @contextmanager
    def opened(self, what: str) -> Iterator[Any]:
        """Open a ``paho.mqtt.client.Client``, whose network traffic is that of ``wait``.

        Its user data is the number of messages that may be unacknowledged at a time.

        An error of the client is raised as ``JobError``, which begins with ``what``.
        """
        with self.presented(what):
            client = self.create_client()
            self.connect(client)
            try:
                yield client
            finally:
                client.disconnect()

    @contextmanager
    def presented(self, what: str) -> Iterator[None]:
        """Raise an error of the client as ``JobError``, which begins with ``what`` and has no secrets."""
        secrets = ClientOptions({"url": self._url, "password": unquote(self._address.password or "")})
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            text = secrets.redacted(f"{what} at {self!r}: {type(error).__name__}: {error}")
            raise JobError(text) from secrets.presentable(error)

    def create_client(self, **options: Any) -> Any:
        """Create a client, which is not connected. ``options``: further arguments of ``paho.mqtt.client.Client``."""
        from paho.mqtt.client import Client, MQTTv5
        from paho.mqtt.enums import CallbackAPIVersion

        client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5, **options)
        client.max_inflight_messages_set(0)  # no limit by the client
        address = self._address
        if address.username is not None:
            password = None if address.password is None else unquote(address.password)
            client.username_pw_set(unquote(address.username), password)
        if address.scheme == "mqtts":
            client.tls_set_context(self._tls())
        return client

    def connect(self, client: Any, pause: Callable[[float], object] = time.sleep, **options: Any) -> bool:
        """Connect a client, again and again while the broker is unreachable, at most for ``retry_timeout``.

        Args:
            client: The client.
            pause: Waits some seconds between attempts.
            options: Further arguments of ``Client.connect``.

        Returns:
            Whether the broker has a session of the client.
        """
        deadline = time.monotonic() + self._retry_seconds
        while True:
            try:
                return self._connect(client, options)
            except OSError as error:
                if time.monotonic() + _SECONDS_BETWEEN_ATTEMPTS > deadline:
                    raise
                _LOG.warning("MQTT at %r does not answer, and is tried again: %s", self, type(error).__name__)
                pause(_SECONDS_BETWEEN_ATTEMPTS)

    def wait(self, client: Any, done: Callable[[], bool]) -> None:
        """Send and receive until ``done()``. Raises ``OSError`` without a connection or after half a minute."""
        from paho.mqtt.client import error_string

        deadline = time.monotonic() + _SECONDS
        while not done():
            if (result := client.loop(1.0)) and not done():
                raise ConnectionError(error_string(result))
            if time.monotonic() > deadline:
                raise TimeoutError(f"there was no answer within {_SECONDS} seconds")

    def _connect(self, client: Any, options: Mapping[str, Any]) -> bool:
        address = self._address
        answers: list[Any] = []
        client.on_connect = lambda *answer: answers.append(answer)
        client.connect(address.hostname or "", address.port or _PORTS[address.scheme], **options)
        self.wait(client, lambda: bool(answers))
        _, _, flags, reason, properties = answers[0]
        if reason.is_failure:
            raise ValueError(f"the broker refuses the connection: {reason}")
        client.user_data_set(getattr(properties, "ReceiveMaximum", RECEIVE_MAXIMUM))
        return bool(flags.session_present)
