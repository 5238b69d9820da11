"""``Dashboard``: the settings of a dashboard."""

from __future__ import annotations

import ipaddress
import re
import secrets
from dataclasses import dataclass, field, replace

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import ConfigurationError

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,}")  # what needs no escaping in a URL, a header or a cookie
_PORTS = 65_536


@dataclass(frozen=True)
class Dashboard:
    """The address and permissions of a dashboard. Pass it as ``execute(..., dashboard=Dashboard(...))``.

    Args:
        port: The port. 0: a free one, which is printed.
        host: The address to listen at. Any other than that of this machine itself requires a token.
        token: The token that browsers must present, at least 16 letters, digits or ``.``, ``_``, ``~``, ``-``. None
            (default): a random one, which is printed, if a token is required.
        allow_actions: Whether the job can be changed from there: stopped, for example. This requires a token.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    port: int = 8050
    host: str = "127.0.0.1"
    token: str | None = field(default=None, repr=False)
    allow_actions: bool = False

    def __post_init__(self) -> None:
        if not is_whole_number(self.port) or not 0 <= self.port < _PORTS:
            raise ConfigurationError(f"The port of a dashboard is a number from 0 to {_PORTS - 1}, not {self.port!r}.")
        if not isinstance(self.host, str) or not self.host:
            raise ConfigurationError(
                f'The host of a dashboard is an address, such as "127.0.0.1" or "0.0.0.0", not {self.host!r}.'
            )
        if self.token is not None and not (isinstance(self.token, str) and _TOKEN.fullmatch(self.token)):
            raise ConfigurationError(
                "The token of a dashboard has at least 16 letters, digits or . _ ~ -. This command prints one: "
                "openssl rand -hex 32"
            )

    @staticmethod
    def of(value: Dashboard | int) -> Dashboard:
        """Return the settings that a user has given: a port, or all of them.

        Raises:
            ConfigurationError: ``value`` is neither.
        """
        if isinstance(value, bool) or not isinstance(value, Dashboard | int):
            raise ConfigurationError(f"dashboard is a port, such as 8050, or a Dashboard(...), not {value!r}.")
        return value if isinstance(value, Dashboard) else Dashboard(value)

    @staticmethod
    def at(address: str, token: str | None = None, *, allow_actions: bool = False) -> Dashboard:
        """Return the settings of a command line.

        Args:
            address: ``PORT`` or ``HOST:PORT``.
            token: The token, or None.
            allow_actions: Whether the job can be changed from there.

        Raises:
            ConfigurationError: An argument is invalid.
        """
        host, _, port = address.rpartition(":")
        if not (port.isascii() and port.isdigit()):
            raise ConfigurationError(f"The dashboard {address!r} is not PORT or HOST:PORT, such as 0.0.0.0:8050.")
        return Dashboard(int(port), host.strip("[]") or Dashboard.host, token, allow_actions)

    def with_token(self) -> Dashboard:
        """Return the settings, with a random token if one is required and none was given."""
        if self.token is None and (self.allow_actions or not is_loopback(self.host)):
            return replace(self, token=secrets.token_urlsafe(24))
        return self


def is_loopback(host: str) -> bool:
    """Return whether only programs on this machine can reach ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
