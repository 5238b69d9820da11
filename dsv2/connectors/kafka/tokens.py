"""The tokens of SASL OAUTHBEARER, which a function of the program returns."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TypeAlias

import cloudpickle

from dsv2.base.secrets import ClientOptions, hide
from dsv2.errors import ConfigurationError, JobError

Token: TypeAlias = tuple[str, float] | tuple[str, float, str] | tuple[str, float, str, Mapping[str, str]]
"""A token and when it expires, in seconds since the epoch; then the principal and the SASL extensions, if needed."""

OAuthCallback: TypeAlias = Callable[[str], Token]
"""Returns a token. The argument is the option ``sasl.oauthbearer.config``."""

_LOG = logging.getLogger(__name__)
_REUSED = 0.75  # of the lifetime of a token; the client library asks for the next token after 0.8
_LATEST_SECONDS = 1e11  # a later time is in ms


class TokenSource:
    """Returns tokens to the clients of a process, from one call of the function for each lifetime of a token.

    The client library calls it in a thread of its own, also while nothing is read or written.
    """

    def __init__(
        self, callback: OAuthCallback, config: str, key: str | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        """Wrap the function.

        Args:
            callback: The function.
            config: Its argument.
            key: What distinguishes the function from others. None: it is derived from the function.
            clock: Returns the seconds since the epoch.
        """
        self._callback = callback
        self._config = config
        self.key = _key(callback) if key is None else key
        self._clock = clock
        self._lock = Lock()
        self._token: Token | None = None
        self._renewed_after = 0.0
        self._failure = ""

    def __reduce__(self) -> tuple[type[TokenSource], tuple[OAuthCallback, str, str]]:
        """Pickle the function without the token."""
        return TokenSource, (self._callback, self._config, self.key)

    def __call__(self, config: str) -> Token:
        """Return a valid token. If the function fails, that is the previous token until it expires."""
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._renewed_after:
                try:
                    self._token = _checked(self._callback(self._config), now)
                    self._renewed_after = now + _REUSED * (self._token[1] - now)
                    self._failure = ""
                except Exception as error:
                    self._failure = _description(error)
                    if self._token is None or self._token[1] <= now:
                        raise
                    _LOG.warning("%s The previous token is used until it expires.", self._failure)
            return self._token

    def prepared(self) -> TokenSource:
        """Return this source after getting a token. Raises ``JobError`` if the function fails."""
        try:
            self(self._config)
        except Exception:
            raise JobError(f"Cannot get a token for Kafka. {self._failure}") from None
        return self

    def rejected(self) -> str:
        """Forget the token, which the brokers rejected. Returns the description of the last failure, if any."""
        self._renewed_after = 0.0
        return self._failure

    def redacted(self, text: str) -> str:
        """Return ``text`` with the token hidden."""
        token = self._token
        return text if token is None else hide(text, [token[0]])


def check_login(user: str, options: ClientOptions, callback: OAuthCallback | None) -> TokenSource | None:
    """Check that the options of the connector ``user`` fit ``callback``, and return its tokens, if there are any.

    Raises:
        ConfigurationError: There is a callback that would not be called, or none although one is required.
    """
    mechanism = str(options.get("sasl.mechanism", options.get("sasl.mechanisms", ""))).upper()
    protocol = str(options.get("security.protocol", "plaintext")).upper()
    uses_tokens = mechanism == "OAUTHBEARER" and protocol.startswith("SASL_")
    without_callback = (
        str(options.get("sasl.oauthbearer.method", "")).lower() == "oidc"
        or str(options.get("enable.sasl.oauthbearer.unsecure.jwt", "")).lower() == "true"
    )
    if callback is None:
        if uses_tokens and not without_callback:
            raise ConfigurationError(
                f"{user}: the mechanism OAUTHBEARER requires tokens. Pass oauth_cb, a function that returns them, or "
                f"set the option 'sasl.oauthbearer.method' to 'oidc'."
            )
        return None
    if not uses_tokens or without_callback:
        raise ConfigurationError(
            f"{user} would not call oauth_cb. Set the options 'security.protocol' to 'SASL_SSL' and 'sasl.mechanism' "
            f"to 'OAUTHBEARER', without 'sasl.oauthbearer.method'."
        )
    return TokenSource(callback, str(options.get("sasl.oauthbearer.config", "")))


def _key(callback: OAuthCallback) -> str:
    """Equal for copies of ``callback`` in other processes, if it can be pickled."""
    try:
        return sha256(cloudpickle.dumps(callback)).hexdigest()
    except Exception:  # it stays in this process
        return hex(id(callback))


def _checked(token: Token, now: float) -> Token:
    match token:
        case (str(), float() | int(), *_):
            pass
        case _:
            raise ConfigurationError("oauth_cb must return a tuple of a token and the time when it expires.")
    if token[1] > _LATEST_SECONDS:
        raise ConfigurationError("oauth_cb must return the time when the token expires in seconds, not ms.")
    if token[1] <= now:
        raise ConfigurationError("oauth_cb returned a token that has expired.")
    return token


def _description(error: Exception) -> str:
    """The failure of a function without the message of its error, which may contain a secret."""
    if isinstance(error, ConfigurationError):
        return str(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"oauth_cb raised {type(error).__name__} ({Path(place.filename).name}, line {place.lineno})."
