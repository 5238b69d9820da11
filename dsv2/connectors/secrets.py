"""Keeping passwords out of everything that people read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

__all__ = ("ClientOptions", "OptionValue")

OptionValue: TypeAlias = str | int | float | bool

_HIDDEN = "***"
_SECRET = re.compile(
    r"passw|secret|jaas|token(?!\.endpoint)|passphrase|private|key\.pem|oauthbearer\.config|credentials"
)


class ClientOptions(Mapping[str, OptionValue]):
    """Options for a client library, passed on as they are. Those that are secret by their name do not show."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self._options = dict(options)

    def __getitem__(self, name: str) -> OptionValue:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return repr({name: _HIDDEN if _is_secret(name) else value for name, value in self._options.items()})

    def redacted(self, text: str) -> str:
        """``text``, which a client may have written, without the secrets."""
        for name, value in self._options.items():
            if _is_secret(name) and value != "":
                text = text.replace(str(value), _HIDDEN)
        return text


def _is_secret(name: str) -> bool:
    return _SECRET.search(name.lower()) is not None
