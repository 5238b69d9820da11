"""Checks of the arguments of connectors that read or write rows of a table."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.errors import ConfigurationError


def check_columns_of(user: str, columns: Sequence[str]) -> None:
    """Raise ``ConfigurationError`` unless ``columns`` are distinct names. ``user``: The connector, for the message."""
    if isinstance(columns, str) or not columns or len(set(columns)) < len(columns):
        raise ConfigurationError(f"columns of {user} must be a list of distinct names, got {columns!r}.")


def check_key_of(user: str, columns: Sequence[str], key: Sequence[str], *, deletes: bool) -> None:
    """Raise ``ConfigurationError`` if ``key`` has other columns, or rows are deleted without a key."""
    if unknown := [name for name in key if name not in columns]:
        raise ConfigurationError(f"The key of {user} must be among its columns, but {', '.join(unknown)} is not.")
    if deletes and not key:
        raise ConfigurationError(f"{user} deletes rows by key. Pass a key, or omit deletes.")
