"""The states of one function in one subtask: a handle for each, and what belongs to the subtask instead of a key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv2.errors import UndeclaredStateError
from dsv2.functions import ProcessFunction
from dsv2.runtime.codec import Codec
from dsv2.runtime.contexts import PartitionState
from dsv2.runtime.expiring import (
    ExpiringAggregatingHandle,
    ExpiringHandle,
    ExpiringListHandle,
    ExpiringMapHandle,
    ExpiringReducingHandle,
    ExpiringValueHandle,
    Home,
    Lifetimes,
    expire,
)
from dsv2.runtime.handles import (
    AggregatingHandle,
    Cells,
    Handle,
    ListHandle,
    MapHandle,
    PlainHandle,
    ReducingHandle,
    Spot,
    ValueHandle,
)
from dsv2.runtime.keyed_store import PagedKeyedStore
from dsv2.runtime.pages import encode_state
from dsv2.runtime.timers import BatchTime
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
        self._keyed_home = _keyed_home(store, partition)
        self._lifetimes = Lifetimes(store, partition, time)
        self._handles = {declaration.name: self._new_handle(declaration) for declaration in function.uses_states()}
        self._expiring = [handle for handle in self._handles.values() if isinstance(handle, ExpiringHandle)]
        partition.handles = self._handles
        partition.new_handle = lambda declaration, home: _new_handle(declaration, *_at_home(declaration.name, home))

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
            return _EXPIRING_HANDLES[type(declaration)](declaration, self._keyed_home, self._lifetimes)
        name = declaration.name
        if declaration.redistribution_mode is RedistributionMode.NONE:
            return _new_handle(declaration, self._store.column(name), self._partition)
        return _new_handle(declaration, *_at_home(name, self._subtask_state.home_of(name)))


class _SubtaskState:
    """States that belong to the subtask: each is bytes until it is asked for."""

    def __init__(self, codec: Codec, owner: str) -> None:
        self._codec = codec
        self._owner = owner
        self._encoded: dict[str, bytes] = {}
        self._values: dict[str, Any] = {}

    def home_of(self, name: str) -> Home:
        """The way to the state ``name``."""
        values, encoded = self._values, self._encoded

        def home() -> dict[str, Any]:
            if name in encoded:
                values[name] = self._codec.loads(encoded.pop(name), self._owner)
            return values

        return home

    def snapshot(self) -> dict[str, bytes]:
        """Per name the value; encodes only those that were asked for."""
        for name in sorted(self._values):
            self._encoded[name] = encode_state(self._codec, self._values[name], f"{self._owner}, state {name!r}")
        self._values.clear()  # whoever changes a value from now on has to ask for it again
        return {name: self._encoded[name] for name in sorted(self._encoded)}

    def restore(self, state: Mapping[str, bytes]) -> None:
        """Take over an earlier ``snapshot``."""
        self._values.clear()
        self._encoded.clear()
        self._encoded.update(state)


class _CellsAtHome:
    """Cells of a dict that is found anew at each access, for it may be another one by then."""

    __slots__ = ("_home",)

    def __init__(self, home: Home) -> None:
        self._home = home

    def get(self, key: Any, /) -> Any:
        return self._home().get(key)

    def pop(self, key: Any, default: None, /) -> Any:
        return self._home().pop(key, default)

    def __getitem__(self, key: Any, /) -> Any:
        return self._home()[key]

    def __setitem__(self, key: Any, value: Any, /) -> None:
        self._home()[key] = value

    def __contains__(self, key: Any, /) -> bool:
        return key in self._home()


class _SameSpot:
    """Always the cell of one name."""

    def __init__(self, name: str) -> None:
        self.key: Any = name
        self.touched = (name,)

    def touch(self) -> None:
        """Nothing is left to do."""


def _at_home(name: str, home: Home) -> tuple[Cells, Spot]:
    """Where the state ``name`` is that is among others in the dict of ``home``."""
    return _CellsAtHome(home), _SameSpot(name)


def _new_handle(declaration: StateDeclaration, cells: Cells, spot: Spot) -> Handle:
    return _HANDLES[type(declaration)](declaration, cells, spot)


def _keyed_home(store: PagedKeyedStore, partition: PartitionState) -> Home:
    live, make = store.live, store.entry

    def home() -> dict[Any, Any]:
        entry = live.get(partition.key)
        return entry if entry is not None else make(partition.current_key)

    return home
