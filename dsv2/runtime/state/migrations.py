"""Converts values that an earlier program stored under a lower version of a state.

Values are stored under the name of the state and its version, so every value has the version with which it was written,
across any number of upgrades. Version 1 is not part of the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

from dsv2.runtime.report.failure import NOT_OF_THE_USER
from dsv2.state import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    StateDeclaration,
)

FailedMigration: TypeAlias = Callable[[StateDeclaration, Any, BaseException], NoReturn]
"""Raises the error for an exception of a converter. Called with the state, the key and the exception."""


def stored_name(declaration: StateDeclaration) -> str:
    """Return the name under which values of the current version are stored."""
    return versioned_name(declaration.name, declaration.version)


def versioned_name(name: str, version: int) -> str:
    """Return the name under which values of a version are stored."""
    return name if version == 1 else f"{name}@{version}"


def split_name(stored: str) -> tuple[str, int]:
    """Return the name of a state and the version of its values."""
    name, _, version = stored.rpartition("@")
    return (name, int(version)) if name and version.isdecimal() else (stored, 1)


class Migrations:
    """The converters of the states of one function."""

    __slots__ = ("_fail", "_states", "of_entries")

    def __init__(self, declarations: Iterable[StateDeclaration], fail: FailedMigration) -> None:
        self._states = {state.name: state for state in declarations if state.migrate is not None}
        self._fail = fail
        self.of_entries = any(state.time_to_live is not None for state in self._states.values())
        """True if values in entries of keys may have to be converted."""

    def __bool__(self) -> bool:
        return bool(self._states)

    def outdated(self, stored: str) -> StateDeclaration | None:
        """Return the state whose values are stored under ``stored`` in a lower version, or None."""
        name, version = split_name(stored)
        state = self._states.get(name)
        return state if state is not None and version < state.version else None

    def is_redistributed(self, stored: str) -> bool:
        """Return whether the state is a list whose elements are redistributed between subtasks."""
        state = self._states[split_name(stored)[0]]
        return state.redistribution_mode is RedistributionMode.REDISTRIBUTABLE

    def convert(self, stored: str, key: Any, content: Any) -> Any:
        """Return the content of an outdated state in the current version; None if nothing is left."""
        name, version = split_name(stored)
        state = self._states[name]
        try:
            return _converted(state, version, content)
        except NOT_OF_THE_USER:
            raise
        except BaseException as error:
            self._fail(state, key, error)

    def convert_column(self, stored: str, keys: Sequence[Any], contents: Sequence[Any]) -> tuple[str, dict[Any, Any]]:
        """Convert the contents of an outdated state, by key. Return its current name, and what is left."""
        converted = {key: self.convert(stored, key, content) for key, content in zip(keys, contents, strict=True)}
        name = stored_name(self._states[split_name(stored)[0]])
        return name, {key: content for key, content in converted.items() if content is not None}

    def convert_entry(self, key: Any, entry: dict[Any, Any]) -> None:
        """Convert the outdated states in ``entry``, which maps names to contents, in place."""
        for stored in [name for name in entry if isinstance(name, str)]:
            if (state := self.outdated(stored)) is not None:
                content = self.convert(stored, key, entry.pop(stored))
                if content is not None:
                    entry[stored_name(state)] = content


def _converted(state: StateDeclaration, version: int, content: Any) -> Any:
    migrate: Any = state.migrate
    if state.time_to_live is None:

        def convert(value: Any) -> Any:
            return migrate(value, version)

    else:

        def convert(value: Any) -> Any:
            return migrate(value[0], version), value[1]  # with its expiry

    if isinstance(state, ListStateDeclaration):
        return list(map(convert, content))
    if isinstance(state, MapStateDeclaration | BroadcastStateDeclaration):
        return {key: convert(value) for key, value in content.items()}
    converted = convert(content)
    return None if state.time_to_live is not None and converted[0] is None else converted
