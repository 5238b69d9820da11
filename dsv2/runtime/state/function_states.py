"""The states of one function in one subtask: a handle for each, and what belongs to the subtask instead of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv2.errors import UndeclaredStateError
from dsv2.functions import ProcessFunction
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
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.pages import encode_state
from dsv2.runtime.state.partition import PartitionState
from dsv2.runtime.state.timers import BatchTime
from dsv2.runtime.state.ttl_handles import (
    EntryLookup,
    ExpiringAggregatingHandle,
    ExpiringHandle,
    ExpiringListHandle,
    ExpiringMapHandle,
    ExpiringReducingHandle,
    ExpiringValueHandle,
    ExpiryIndex,
    expire,
)
from dsv2.state import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    ReducingStateDeclaration,
    StateDeclaration,
    ValueStateDeclaration,
)

__all__ = ("FunctionStates",)

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
    """Gives ``partition`` the handles on the function's states; keeps those that belong to the subtask."""

    def __init__(
        self,
        function: ProcessFunction,
        store: PagedKeyedStore,
        partition: PartitionState,
        codec: Codec,
        time: BatchTime,
        owner: str,
    ) -> None:
        """``owner``: names the states in errors."""
        self._store = store
        self._partition = partition
        self._time = time
        self._subtask_state = _SubtaskState(codec, owner)
        self._entry_of_current_key = _entry_of_current_key(store, partition)
        self._expiries = ExpiryIndex(store, partition, time)
        self._handles = {declaration.name: self._new_handle(declaration) for declaration in function.uses_states()}
        self._expiring = [handle for handle in self._handles.values() if isinstance(handle, ExpiringHandle)]
        partition.handles = self._handles
        partition.new_handle = _entry_handle

    def named(self, name: str) -> Handle:
        """The handle on the state ``name``, which a field of the function held."""
        handle = self._handles.get(name)
        if handle is None:
            raise UndeclaredStateError(f"A field holds the state {name!r}, which uses_states() no longer returns.")
        return handle

    def expire(self) -> None:
        """Remove what has expired; called when time has passed."""
        if self._expiring:
            expire(self._store, self._expiring, self._time.now_ms)

    def snapshot(self) -> dict[str, bytes]:
        """The states of the subtask, by name. Those of the keys are in the keyed store."""
        return self._subtask_state.snapshot()

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Take over an earlier ``snapshot``."""
        self._subtask_state.restore(state)

    def _new_handle(self, declaration: StateDeclaration) -> Handle:
        if declaration.time_to_live is not None:
            return _EXPIRING_HANDLES[type(declaration)](declaration, self._entry_of_current_key, self._expiries)
        name = declaration.name
        if declaration.redistribution_mode is RedistributionMode.NONE:
            return _new_handle(declaration, self._store.column(name), self._partition)
        return _new_handle(declaration, self._subtask_state.values, _SubtaskKey(self._subtask_state, name))


class _SubtaskState:
    """States that belong to the subtask: each is bytes until it is asked for."""

    def __init__(self, codec: Codec, owner: str) -> None:
        self.values: dict[str, Any] = {}
        self.asked_for: set[str] = set()
        """The names of those that ``values`` has, unless they are empty."""
        self._codec = codec
        self._owner = owner
        self._encoded: dict[str, bytes] = {}

    def ask_for(self, name: str) -> None:
        """Have the state ``name`` in ``values``."""
        if name in self._encoded:
            self.values[name] = self._codec.loads(self._encoded.pop(name), self._owner)
        self.asked_for.add(name)

    def snapshot(self) -> dict[str, bytes]:
        """Per name the value; encodes only those that were asked for."""
        for name in sorted(self.values):
            self._encoded[name] = encode_state(self._codec, self.values[name], f"{self._owner}, state {name!r}")
        self._forget()  # whoever changes a value from now on has to ask for it again
        return {name: self._encoded[name] for name in sorted(self._encoded)}

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Take over an earlier ``snapshot``."""
        self._forget()
        self._encoded.clear()
        self._encoded.update(state)

    def _forget(self) -> None:
        self.values.clear()
        self.asked_for.clear()


class _SubtaskKey:
    """The state ``name`` of the subtask, whatever the key."""

    __slots__ = ("_state", "key", "touched")

    def __init__(self, state: _SubtaskState, name: str) -> None:
        self.key: Any = name
        self.touched = state.asked_for
        self._state = state

    def touch(self) -> None:
        """Ask for it."""
        self._state.ask_for(self.key)


class _EntryColumn:
    """StateColumn of a dict that is found anew at each access, for it may be another one by then."""

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
    """Always the cell of one name."""

    __slots__ = ("key", "touched")

    def __init__(self, name: str) -> None:
        self.key: Any = name
        self.touched = (name,)

    def touch(self) -> None:
        """Nothing is left to do."""


def _entry_handle(declaration: StateDeclaration, lookup: EntryLookup) -> Handle:
    return _new_handle(declaration, _EntryColumn(lookup), _NameAsKey(declaration.name))


def _new_handle(declaration: StateDeclaration, column: StateColumn, current: CurrentKey) -> Handle:
    return _HANDLES[type(declaration)](declaration, column, current)


def _entry_of_current_key(store: PagedKeyedStore, partition: PartitionState) -> EntryLookup:
    live, make = store.live, store.entry

    def lookup() -> dict[Any, Any]:
        entry = live.get(partition.key)
        return entry if entry is not None else make(partition.current_key)

    return lookup
