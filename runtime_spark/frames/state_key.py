"""The key that signs the state of a job."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

from dsv2.errors import ConfigurationError

_MIN_BYTES = 32


class StateKey:
    """Signs the state in a checkpoint, for ``SparkRuntime(session, state_key=...)``; see ``docs/security.md``.

    Create it on the driver, from a file or an environment variable. Its ``repr`` does not show the value.

    Args:
        secret: At least 32 bytes.

    Raises:
        ConfigurationError: ``secret`` has fewer bytes.
    """

    def __init__(self, secret: bytes) -> None:
        if not isinstance(secret, bytes) or len(secret) < _MIN_BYTES:
            raise ConfigurationError(
                f"A state key must have at least {_MIN_BYTES} bytes. Create one with openssl rand -hex 32."
            )
        self._value = blake2b(secret, digest_size=64, person=b"dsv2 state key").digest()

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> StateKey:
        """Read the key from a file on the driver. Whitespace around it is ignored.

        Args:
            path: The path of the file.

        Raises:
            ConfigurationError: The file cannot be read, or the key is too short.
        """
        try:
            return StateKey(Path(path).read_bytes().strip())
        except OSError as error:
            raise ConfigurationError(f"The state key cannot be read from {path}: {error.strerror}.") from error

    @staticmethod
    def from_environment(name: str) -> StateKey:
        """Read the key from an environment variable of the driver. Whitespace around it is ignored.

        Args:
            name: The name of the variable.

        Raises:
            ConfigurationError: The variable is not set, or the key is too short.
        """
        value = os.environ.get(name)
        if value is None:
            raise ConfigurationError(f"The environment variable {name}, which holds the state key, is not set.")
        return StateKey(value.strip().encode())

    @property
    def value(self) -> bytes:
        """The derived key with which the runtime signs."""
        return self._value

    def __repr__(self) -> str:
        return "StateKey(...)"
