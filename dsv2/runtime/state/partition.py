"""State and timers of the current key, as functions use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_origin

from dsv2.errors import ContractError, UndeclaredStateError
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.serde.references import Reference
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.timers import BatchTime, TimerService
from dsv2.spi import KeyEntry, PartitionAccess, check_timestamp
from dsv2.state import RedistributionMode, StateDeclaration
from dsv2.watermark.event_time import EventTimeOfInputs


class PartitionState(PartitionAccess):
    """``StateManager``. The runtime sets ``key`` before each callback of a keyed function."""

    __slots__ = ("_keyed", "_store", "attempt", "handles", "key", "new_handle", "panes", "touched")

    def __init__(self, keyed: bool, store: PagedKeyedStore) -> None:
        self._keyed = keyed
        self._store = store
        self.panes = store.panes
        self.attempt: Callable[..., bool] | None = None
        self.key = NO_KEY
        self.touched = store.touched
        self.handles: Mapping[str, Handle] = {}
        self.new_handle: Callable[[StateDeclaration, Callable[[], KeyEntry]], Handle]

    @property
    def current_key(self) -> Any:
        """The current key. Raises ``ContractError`` if there is none."""
        if self.key is NO_KEY:
            raise ContractError(
                "There is no current key here (open, watermarks, broadcast records and end of input concern all "
                "partitions). Use ctx.apply_to_all_partitions."
                if self._keyed
                else "The key is only defined for functions on a keyed stream. Call key_by before process."
            )
        return self.key

    def key_as(self, kind: Any) -> Any:
        """Return the current key. Raises ``ContractError`` if it is not of the class ``kind``, or there is none."""
        key = self.current_key
        if not isinstance(key, get_origin(kind) or kind):
            raise ContractError(f"The current key is {key!r:.80} ({type(key).__qualname__}), not {kind}.")
        return key

    def touch(self) -> None:
        """Load the values of the current key."""
        self._store.touch(self.current_key)

    def entry(self) -> KeyEntry:
        """Return the live entry of the current key, creating it if necessary. Extensions store state in it."""
        return self._store.live.get(self.key) or self._store.entry(self.current_key)

    def find(self) -> KeyEntry | None:
        """Return the entry of the current key for reading, or None. Changes may be lost."""
        return self._store.find(self.key)

    def get_state(self, declaration: Any) -> Any:
        """Return the handle for a state. Raises ``UndeclaredStateError`` if it is not declared."""
        handle = self.handles.get(getattr(declaration, "name", ""))
        if handle is not None and handle.declaration is declaration:
            return handle  # the fast path, because this may be called per record
        handle = self.get_state_optional(declaration)
        if handle is None:
            known = ", ".join(map(str, (handle.declaration for handle in self.handles.values()))) or "none"
            raise UndeclaredStateError(
                f"{declaration} is not declared (declared: {known}). Return its declaration from uses_states()."
            )
        return handle

    def get_state_optional(self, declaration: Any) -> Any:
        """Return the handle for a state, or None."""
        if not isinstance(declaration, StateDeclaration):
            raise ContractError(f"get_state requires the declaration of the state, got {declaration!r}.")
        handle = self.handles.get(declaration.name)
        if handle is None or handle.declaration is declaration or handle.declaration.matches(declaration):
            return handle
        raise UndeclaredStateError(
            f"uses_states() returns another declaration of {declaration.name!r}:\n  requested: {declaration!r}\n"
            f"  declared:  {handle.declaration!r}"
        )


class SubtaskStates:
    """``SubtaskStateManager``."""

    __slots__ = ("_partition",)

    def __init__(self, partition: PartitionState) -> None:
        self._partition = partition

    def get_state(self, declaration: Any) -> Any:
        """Return the handle for a state. Raises ``UndeclaredStateError`` if it is not declared."""
        return _without_key(self._partition.get_state(declaration))

    def get_state_optional(self, declaration: Any) -> Any:
        """Return the handle for a state, or None."""
        handle = self._partition.get_state_optional(declaration)
        return None if handle is None else _without_key(handle)


def _without_key(handle: Handle) -> Handle:
    if handle.declaration.redistribution_mode is RedistributionMode.NONE:
        raise ContractError(
            f"{handle.declaration} belongs to a key, but a NonPartitionedContext only has states of the subtask. Use "
            f"ctx.apply_to_all_partitions."
        )
    return handle


class KeyTimers:
    """Timers of the current key."""

    __slots__ = ("_partition", "_timers")

    def __init__(self, partition: PartitionState, timers: TimerService) -> None:
        self._partition = partition
        self._timers = timers

    def register_timer(self, timestamp: int) -> None:
        """Call the function for the current key when time has reached ``timestamp`` ms."""
        check_timestamp(timestamp)
        self._timers.register(self._partition.current_key, timestamp)

    def delete_timer(self, timestamp: int) -> None:
        """Delete the timer of the current key at ``timestamp`` ms."""
        self._timers.delete(self._partition.current_key, timestamp)

    def timers(self) -> list[int]:
        """The times of the timers of the current key, ascending."""
        return self._timers.of(self._partition.current_key)


class PartitionTimers(KeyTimers):
    """``ProcessingTimeManager``: timers of the current key."""

    __slots__ = ("_time",)

    def __init__(self, partition: PartitionState, timers: TimerService, time: BatchTime) -> None:
        super().__init__(partition, timers)
        self._time = time

    def current_time(self) -> int:
        """Return processing time in ms since the epoch."""
        return self._time.now_ms


class EventTimers(KeyTimers, Reference):
    """``EventTimeManager``: event timers of the current key. A function may store it in a field."""

    __slots__ = ("_inputs",)

    reference_kind = "event time manager"

    def __init__(self, partition: PartitionState, timers: TimerService, inputs: EventTimeOfInputs) -> None:
        super().__init__(partition, timers)
        self._inputs = inputs

    @property
    def reference_name(self) -> str:
        return ""

    def current_time(self) -> int:
        """Return the event time of the operator in ms."""
        return self._inputs.current

    def uses_processing_time(self) -> bool:
        """Return whether event time is the wall clock."""
        return self._inputs.uses_processing_time
