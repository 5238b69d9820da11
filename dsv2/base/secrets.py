"""Redaction of passwords and other secrets in messages and logs."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias
from urllib.parse import quote, quote_plus

OptionValue: TypeAlias = str | int | float | bool

HIDDEN = "***"
"""Replaces a secret."""

# The pattern is loose on purpose: users misspell the names of options.
_SECRET = re.compile(
    r"pas+w|pwd|secret|jaas|token(?!\.endpoint)|pas+phrase|private|key\.pem|keystore\.pem|oauthbearer\.config|"
    r"credential(?!s?\.client\.id|s\.source)|(?:account|access|sas).?key|kinit\.cmd|user\.info"
)
_USER_IN_URL = re.compile(r"(?<=://).+(?=@)", re.DOTALL)  # up to the last @: a password may contain an unescaped @


class ClientOptions(Mapping[str, OptionValue]):
    """The options of a client library, unchanged. The repr hides the values of options whose names suggest a secret."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        self._options = dict(options)

    def __getitem__(self, name: str) -> OptionValue:
        return self._options[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._options)

    def __len__(self) -> int:
        return len(self._options)

    def __repr__(self) -> str:
        return repr({name: shown_option(name, value) for name, value in self._options.items()})

    def redacted(self, text: str) -> str:
        """Return ``text`` with the secrets of these options hidden."""
        return hide(text, [secret for name, value in self._options.items() for secret in _secrets(name, value)])

    def presentable(self, error: Exception) -> Exception | None:
        """Return ``error`` as the cause of another error; None if it contains a secret, as tracebacks show causes."""
        return error if self.redacted(str(error)) == str(error) else None


def hide(text: str, secrets: Collection[str]) -> str:
    """Return ``text`` with ``secrets`` replaced, in every encoding that a client may use in its messages."""
    forms = {form for secret in secrets for form in _forms(secret) if form}
    if not forms:
        return text
    longest_first = sorted(forms, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), HIDDEN, text)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield from secret.splitlines()  # a key in PEM
    yield repr(secret)[1:-1]
    yield json.dumps(secret)[1:-1]
    yield quote(secret)
    yield quote(secret, safe="")
    yield quote_plus(secret)


def shown_option(name: str, value: OptionValue) -> OptionValue:
    """Return the value of an option, or ``HIDDEN`` if its name suggests a secret. Users in URLs are hidden as well."""
    if _SECRET.search(name.lower()) is not None:
        return HIDDEN
    return _USER_IN_URL.sub(HIDDEN, value) if isinstance(value, str) else value


def _secrets(name: str, value: OptionValue) -> Iterator[str]:
    if _SECRET.search(name.lower()) is not None:
        yield str(value)
        if name.lower().endswith("user.info"):  # "user:password"
            yield str(value).partition(":")[2]
    elif isinstance(value, str):
        for user in _USER_IN_URL.findall(value):
            yield user
            yield user.partition(":")[2]
