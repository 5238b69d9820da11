"""The states of one function in one subtask: a handle for each, and the values of subtask states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv2.errors import UndeclaredStateError
from dsv2.functions import ProcessFunction
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.handles import (
    AggregatingHandle,
    CurrentKey,
    Handle,
    ListHandle,
    MapHandle,
    PlainHandle,
    ReducingHandle,
    StateColumn,
    ValueHandle,
)
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.migrations import FailedMigration, Migrations, split_name, stored_name
from dsv2.runtime.state.pages import encode_state
from dsv2.runtime.state.partition import PartitionState
from dsv2.runtime.state.timers import BatchTime
from dsv2.runtime.state.ttl_handles import (
    EntryLookup,
    EventClock,
    EventExpiryIndex,
    ExpiringAggregatingHandle,
    ExpiringHandle,
    ExpiringListHandle,
    ExpiringMapHandle,
    ExpiringReducingHandle,
    ExpiringValueHandle,
    ExpiryIndex,
)
from dsv2.state import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    ReducingStateDeclaration,
    StateDeclaration,
    TtlTimeCharacteristic,
    ValueStateDeclaration,
)

_HANDLES: Mapping[type[StateDeclaration], Callable[..., PlainHandle]] = {
    ValueStateDeclaration: ValueHandle,
    ListStateDeclaration: ListHandle,
    MapStateDeclaration: MapHandle,
    BroadcastStateDeclaration: MapHandle,
    ReducingStateDeclaration: ReducingHandle,
    AggregatingStateDeclaration: AggregatingHandle,
}
_EXPIRING_HANDLES: Mapping[type[StateDeclaration], Callable[..., ExpiringHandle]] = {
    ValueStateDeclaration: ExpiringValueHandle,
    ListStateDeclaration: ExpiringListHandle,
    MapStateDeclaration: ExpiringMapHandle,
    ReducingStateDeclaration: ExpiringReducingHandle,
    AggregatingStateDeclaration: ExpiringAggregatingHandle,
}


class FunctionStates:
    """Creates the handles for the function's states, passes them to ``partition``, and stores subtask states."""

    def __init__(
        self,
        function: ProcessFunction,
        store: PagedKeyedStore,
        partition: PartitionState,
        codec: Codec,
        time: BatchTime,
        event_clock: EventClock,
        owner: str,
        fail: FailedMigration,
        new_dict: Callable[[], dict[Any, Any]] = dict,
    ) -> None:
        """Create the handles.

        Args:
            function: Declares the states.
            store: Holds the states of keys.
            partition: The current key.
            codec: Serializes subtask states.
            time: The time of the micro-batch.
            event_clock: Event time of the operator.
            owner: Names the states in error messages.
            fail: Called if a converter raises an exception.
            new_dict: Creates the dict that holds subtask states.
        """
        self._store = store
        self._partition = partition
        self._fail = fail
        migrations = Migrations(function.uses_states(), fail)
        if migrations:
            store.convert_with(migrations)
        self._subtask_state = _SubtaskState(codec, owner, migrations, new_dict())
        self._entry_of_current_key = _entry_of_current_key(store, partition)
        self._expiries = {
            TtlTimeCharacteristic.PROCESSING_TIME: ExpiryIndex(store, partition, Domain.EXPIRY, time),
            TtlTimeCharacteristic.EVENT_TIME: EventExpiryIndex(store, partition, event_clock),
        }
        self._handles = {declaration.name: self._new_handle(declaration) for declaration in function.uses_states()}
        self._expiring = self._expiring_handles(function)
        partition.handles = self._handles
        partition.new_handle = self._entry_handle

    def named(self, name: str) -> Handle:
        """Return the handle for the state ``name``, to which a field of the function refers.

        Raises:
            UndeclaredStateError: The function no longer declares the state.
        """
        handle = self._handles.get(name)
        if handle is None:
            raise UndeclaredStateError(
                f"A field refers to the state {name!r}, which uses_states() no longer returns. Declare it again."
            )
        return handle

    def expire(self) -> None:
        """Remove expired values."""
        for expiries, handles in self._expiring:
            expiries.expire(handles)

    def snapshot(self) -> dict[str, bytes]:
        """Return the subtask states by name. States of keys are in the keyed store."""
        return self._subtask_state.snapshot()

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Restore a ``snapshot``."""
        self._subtask_state.restore(state)

    def _expiring_handles(self, function: ProcessFunction) -> list[tuple[ExpiryIndex, list[ExpiringHandle]]]:
        """The handles of the states with time to live, by the index of their deadlines."""
        found: dict[TtlTimeCharacteristic, list[ExpiringHandle]] = {}
        for declaration in function.uses_states():
            handle = self._handles[declaration.name]
            if declaration.time_to_live is not None and isinstance(handle, ExpiringHandle):
                found.setdefault(declaration.time_to_live.time_characteristic, []).append(handle)
        return [(self._expiries[characteristic], handles) for characteristic, handles in found.items()]

    def _new_handle(self, declaration: StateDeclaration) -> Handle:
        if (ttl := declaration.time_to_live) is not None:
            expiries = self._expiries[ttl.time_characteristic]
            return _EXPIRING_HANDLES[type(declaration)](declaration, self._entry_of_current_key, expiries)
        name = stored_name(declaration)
        if declaration.redistribution_mode is RedistributionMode.NONE:
            return _new_handle(declaration, self._store.column(name), self._partition)
        return _new_handle(declaration, self._subtask_state.values, _SubtaskKey(self._subtask_state, name))

    def _entry_handle(self, declaration: StateDeclaration, lookup: EntryLookup) -> Handle:
        if declaration.migrate is not None:
            lookup = self._converting(declaration, lookup)
        return _new_handle(declaration, _EntryColumn(lookup), _NameAsKey(stored_name(declaration)))

    def _converting(self, declaration: StateDeclaration, lookup: EntryLookup) -> EntryLookup:
        """Return ``lookup``, which also converts an outdated value of the state."""
        migrations, partition = Migrations([declaration], self._fail), self._partition

        def found() -> dict[Any, Any]:
            entry = lookup()
            migrations.convert_entry(partition.key, entry)
            return entry

        return found


class _SubtaskState:
    """States of the subtask. Each is decoded when it is first accessed."""

    def __init__(self, codec: Codec, owner: str, migrations: Migrations, values: dict[str, Any]) -> None:
        self.values = values
        self.loaded: set[str] = set()
        """The names of decoded states. ``values`` contains those that are not empty."""
        self._codec = codec
        self._owner = owner
        self._migrations = migrations
        self._encoded: dict[str, bytes] = {}

    def load(self, name: str) -> None:
        """Decode the state with this stored name into ``values``, with its outdated values."""
        contents = [*self._outdated(name), *([self._decode(name)] if name in self._encoded else [])]
        if contents:
            # Loads a value, which is not a change that is undone.
            self.values.update({name: contents[-1] if len(contents) == 1 else self._merged(name, contents)})
        self.loaded.add(name)

    def _outdated(self, name: str) -> list[Any]:
        """Remove the outdated values of a state, lowest version first, and return them in the current version."""
        state = split_name(name)[0]
        outdated = [stored for stored in self._encoded if split_name(stored)[0] == state and stored != name]
        return [
            self._migrations.convert(stored, NO_KEY, self._decode(stored))
            for stored in sorted(outdated, key=split_name)
            if self._migrations.outdated(stored) is not None
        ]

    def _merged(self, name: str, contents: list[Any]) -> Any:
        """Values that subtasks with different versions have handed over: elements of lists, or copies of one value."""
        if self._migrations.is_redistributed(name):
            return [element for content in contents for element in content]
        return contents[-1]

    def _decode(self, stored: str) -> Any:
        return self._codec.loads(self._encoded.pop(stored), self._owner)

    def snapshot(self) -> dict[str, bytes]:
        """Return the encoded values by name. Only loaded states are encoded again."""
        for name in sorted(self.values):
            self._encoded[name] = encode_state(self._codec, self.values[name], f"{self._owner}, state {name!r}")
        self._forget()  # so that later changes load the value again
        return {name: self._encoded[name] for name in sorted(self._encoded)}

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Restore a ``snapshot``."""
        self._forget()
        self._encoded.clear()
        self._encoded.update(state)

    def _forget(self) -> None:
        self.values.clear()
        self.loaded.clear()


class _SubtaskKey:
    """``CurrentKey`` of a subtask state: always the name of the state."""

    __slots__ = ("_state", "key", "touched")

    def __init__(self, state: _SubtaskState, name: str) -> None:
        self.key: Any = name
        self.touched = state.loaded
        self._state = state

    def touch(self) -> None:
        """Load the state."""
        self._state.load(self.key)


class _EntryColumn:
    """``StateColumn`` of a dict that is looked up at each access, because it may have been replaced."""

    __slots__ = ("_lookup",)

    def __init__(self, lookup: EntryLookup) -> None:
        self._lookup = lookup

    def get(self, key: Any, /) -> Any:
        return self._lookup().get(key)

    def pop(self, key: Any, default: None, /) -> Any:
        return self._lookup().pop(key, default)

    def __getitem__(self, key: Any, /) -> Any:
        return self._lookup()[key]

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._lookup()[key] = value

    def __contains__(self, key: Any, /) -> bool:
        return key in self._lookup()


class _NameAsKey:
    """``CurrentKey`` that is always one name."""

    __slots__ = ("key", "touched")

    def __init__(self, name: str) -> None:
        self.key: Any = name
        self.touched = (name,)

    def touch(self) -> None:
        """Do nothing."""


def _new_handle(declaration: StateDeclaration, column: StateColumn, current: CurrentKey) -> Handle:
    return _HANDLES[type(declaration)](declaration, column, current)


def _entry_of_current_key(store: PagedKeyedStore, partition: PartitionState) -> EntryLookup:
    live, make = store.live, store.entry

    def lookup() -> dict[Any, Any]:
        entry = live.get(partition.key)
        return entry if entry is not None else make(partition.current_key)

    return lookup
