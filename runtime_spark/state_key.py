"""The key that signs the state of a job."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from dsv2.errors import ConfigurationError

__all__ = ("StateKey",)

_LEAST_BYTES = 32


class StateKey:
    """Signs the state in a checkpoint, for ``SparkRuntime(session, state_key=...)``; see ``docs/security.md``.

    Made once, on the driver, from a file or a variable of the environment. Its value is not shown.
    """

    def __init__(self, secret: bytes) -> None:
        """``secret``: at least 32 bytes. Raises ``ConfigurationError`` for fewer."""
        if not isinstance(secret, bytes) or len(secret) < _LEAST_BYTES:
            raise ConfigurationError(
                f"A state key has at least {_LEAST_BYTES} bytes: make one with openssl rand -hex 32."
            )
        self._value = blake2b(secret, digest_size=64, person=b"dsv2 state key").digest()

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> StateKey:
        """The key in a file of the driver, without blanks around it. Raises ``ConfigurationError`` if there is none."""
        try:
            return StateKey(Path(path).read_bytes().strip())
        except OSError as error:
            raise ConfigurationError(f"The state key cannot be read from {path}: {error.strerror}.") from error

    @staticmethod
    def from_environment(name: str) -> StateKey:
        """The key in an environment variable of the driver. Raises ``ConfigurationError`` if it is not set."""
        value = os.environ.get(name)
        if value is None:
            raise ConfigurationError(f"The environment variable {name}, which holds the state key, is not set.")
        return StateKey(value.strip().encode())

    @property
    def value(self) -> bytes:
        """What signs; for the runtime."""
        return self._value

    def __repr__(self) -> str:
        return "StateKey(...)"
