"""Converts snapshots of subtasks to another parallelism, between micro-batches. For test harnesses and tools.

Keys move to the subtasks to which the HASH exchange sends their records. Subtask state is redistributed as declared.
Counters move to subtask 0, which preserves their sum. Everything else must be equal in all subtasks, as it is when all
have received the same watermarks, and is copied. The positions of round-robin edges are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.fields import difference_of_fields
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.migrations import stored_name
from dsv2.state import ListStateDeclaration, RedistributionMode, RedistributionStrategy, StateDeclaration

__all__ = ("rescale",)

_ALIKE = {
    "gates": "the state of their inputs",
    "across_inputs": "watermarks of the inputs",
    "event_time": "event time",
    "sent_time": "the event time that they have sent",
    "inputs": "ended or idle inputs",
    "lifecycle": "lifecycle",
}


def rescale(snapshots: Sequence[bytes], operators: Sequence[Operator], parallelism: int, codec: Codec) -> list[bytes]:
    """Return the snapshots of ``parallelism`` new subtasks.

    Args:
        snapshots: The snapshots of all subtasks, ordered by index.
        operators: The chain that the subtasks run.
        parallelism: The new number of subtasks.
        codec: Decodes and encodes the snapshots.

    Raises:
        IncompatibleCheckpointError: The subtasks differ in state that cannot be redistributed, such as fields of the
            function, or the parallelism exceeds the maximum.
    """
    owner = f"State of {operators[0]}"
    old = [codec.unseal(BlobKind.STATE, blob, f"{owner}, subtask {index}")[0] for index, blob in enumerate(snapshots)]
    new: list[dict[str, Any]] = [{} for _ in range(parallelism)]
    for operator in operators:
        states = _rescaled(operator, [state[operator.uid] for state in old], parallelism, codec)
        for state, of_subtask in zip(states, new, strict=True):
            of_subtask[operator.uid] = state
    return [codec.seal(BlobKind.STATE, (of_subtask, {})) for of_subtask in new]


def _rescaled(
    operator: Operator, old: Sequence[dict[str, Any]], parallelism: int, codec: Codec
) -> list[dict[str, Any]]:
    if not 1 <= parallelism <= operator.max_parallelism:
        raise IncompatibleCheckpointError(
            f"{operator} cannot have {parallelism} subtasks. Its max parallelism is {operator.max_parallelism}."
        )
    _check_alike(operator, old, codec)
    stores = _stores(operator, [state["store"] for state in old], parallelism, codec)
    of_subtask = _subtask_states(operator, [state["subtask_state"] for state in old], parallelism, codec)
    counters = {name for state in old for name in state["counters"]}
    first = {
        "records_in": sum(state["records_in"] for state in old),
        "counters": {name: sum(state["counters"].get(name, 0) for state in old) for name in sorted(counters)},
    }
    others = {"records_in": 0, "counters": dict.fromkeys(sorted(counters), 0)}
    return [
        {**old[0], **(others if index else first), "store": stores[index], "subtask_state": of_subtask[index]}
        for index in range(parallelism)
    ]


def _check_alike(operator: Operator, old: Sequence[dict[str, Any]], codec: Codec) -> None:
    who = f"The subtasks of {operator}, defined at {operator.location}, differ in"
    for index, state in enumerate(old):
        if state["fields"] != old[0]["fields"]:
            difference = difference_of_fields(operator.function, old[0]["fields"], state["fields"], codec)
            raise IncompatibleCheckpointError(
                f"{who} {difference} (subtasks 0 and {index}). Only declared state can be redistributed. Use it for "
                f"data that records change, and set fields in open, which is the same in all subtasks."
            )
        for name, what in _ALIKE.items():
            if state[name] != old[0][name]:
                raise IncompatibleCheckpointError(
                    f"{who} {what} (subtasks 0 and {index}). Before taking snapshots, send all of them the same "
                    f"watermarks, idle statuses and ends on the same channels, as a job does."
                )


def _stores(operator: Operator, old: Iterable[Any], parallelism: int, codec: Codec) -> list[tuple[Any, ...]]:
    owner, remember = f"Keyed state of {operator}", operator.function.dsv2_remember_keys
    new = [PagedKeyedStore(codec, f"{owner}, subtask {index}", remember) for index in range(parallelism)]
    moved: set[Any] = set()
    for snapshot in old:
        store = PagedKeyedStore(codec, owner, remember)
        store.restore(snapshot)
        for key in store:
            if key in moved:
                raise IncompatibleCheckpointError(f"Two subtasks of {operator} have state for the key {key!r}.")
            moved.add(key)
            target = new[subtask_of(key, operator.max_parallelism, parallelism)]
            _move(key, store, target)
        _move_panes(operator, store, new)
    return [store.snapshot() for store in new]


def _move(key: Any, store: PagedKeyedStore, target: PagedKeyedStore) -> None:
    values = dict(store.columns_of(key))
    columns = {name: target.column(name) for name in values}
    target.touch(key)
    for name, value in values.items():
        columns[name][key] = value
    if entry := store.find(key):
        target.entry(key).update(entry)


def _move_panes(operator: Operator, store: PagedKeyedStore, new: Sequence[PagedKeyedStore]) -> None:
    for pane in store.panes:
        for key, value in pane.take_all().items():
            panes = new[subtask_of(key, operator.max_parallelism, len(new))].panes
            target = panes.get(pane.slot) or panes.open(pane.slot, pane.deadline, pane.by_event, pane.layout)
            target.live[key] = value


def _subtask_states(
    operator: Operator, old: Sequence[dict[str, bytes]], parallelism: int, codec: Codec
) -> list[dict[str, bytes]]:
    new: list[dict[str, bytes]] = [{} for _ in range(parallelism)]
    for declaration in operator.function.uses_states():
        name = stored_name(declaration)
        values = [codec.loads(state[name], f"{declaration} of {operator}") for state in old if name in state]
        if values:
            for value, of_subtask in zip(_redistributed(declaration, values, parallelism), new, strict=True):
                of_subtask[name] = codec.dumps(value)
    return new


def _redistributed(declaration: StateDeclaration, values: Sequence[Any], parallelism: int) -> list[Any]:
    if declaration.redistribution_mode is RedistributionMode.IDENTICAL:
        return [values[0]] * parallelism
    elements = [element for value in values for element in value]
    if isinstance(declaration, ListStateDeclaration) and declaration.strategy is RedistributionStrategy.UNION:
        return [elements] * parallelism
    return [elements[index::parallelism] for index in range(parallelism)]
