"""Converts the snapshots of subtasks to another parallelism, with the keyed store. For test harnesses and tests.

The inputs of the first operator keep their channels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple, NoReturn

from dsv2.errors import IncompatibleCheckpointError
from dsv2.graph import Exchange, Operator, OperatorKind
from dsv2.runtime.operator.key_watermarks import kinds_of_deadlines
from dsv2.runtime.rescale.change import InputChange, OperatorChange, Senders
from dsv2.runtime.rescale.operator_states import owner_of, rescaled_states
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.keyed_store import PagedKeyedStore, timers_in
from dsv2.runtime.state.page_store import in_blob
from dsv2.runtime.state.rows import table_rows, unsealed_state
from dsv2.runtime.state.timers import BatchTime
from dsv2.spi import ColumnarFunction
from dsv2.state import StateDeclaration
from dsv2.watermark import WatermarkDeclaration
from dsv2.watermark.event_time import EventTimeOfInputs


def rescaled_columns(operator: Operator, old: Sequence[Mapping[str, Any]], codec: Codec) -> list[dict[str, Any]]:
    """Return the part ``columns`` of the snapshots of new subtasks, moved row by row as through a savepoint."""
    function = operator.function
    if not any(old) or not isinstance(function, ColumnarFunction):
        return [{} for _ in range(operator.parallelism)]
    owner, job = f"Keyed state of {operator}", _Services(codec, BatchTime(0))
    new = [
        function.dsv2_keyed_columns(
            ColumnsEnvironment.of(operator, index, job, in_blob, owner, EventTimeOfInputs(1)), _fail
        )
        for index in range(operator.parallelism)
    ]
    loaders = [columns.loader() for columns in new]
    for subtask, snapshot in enumerate(old):
        for row in table_rows(new[0].stored_tables(snapshot), subtask, codec, owner):
            key = codec.loads(row.key or b"", owner)
            loaders[owner_of(operator, key, subtask)].add(row)
    for loader in loaders:
        loader.finish()
    return [columns.snapshot() for columns in new]


class _Services(NamedTuple):
    codec: Codec
    time: BatchTime


def _fail(state: StateDeclaration, key: Any, error: BaseException) -> NoReturn:
    raise error


def rescale(
    snapshots: Sequence[bytes],
    operators: Sequence[Operator],
    parallelism: int,
    codec: Codec,
    declarations: Mapping[str, WatermarkDeclaration],
) -> list[bytes]:
    """Return the snapshots of ``parallelism`` new subtasks.

    Args:
        snapshots: The snapshots of all subtasks, ordered by index.
        operators: The chain that the subtasks run.
        parallelism: The new number of subtasks.
        codec: Decodes and encodes the snapshots.
        declarations: The watermark declarations of the job by identifier.

    Raises:
        IncompatibleCheckpointError: See ``rescaled_states``. Or two subtasks have state for the same key.
    """
    owner = f"State of {operators[0]}"
    old = [unsealed_state(blob, codec, f"{owner}, subtask {index}")[0] for index, blob in enumerate(snapshots)]
    new: list[dict[str, Any]] = [{} for _ in range(parallelism)]
    for number, operator in enumerate(replace(operator, parallelism=parallelism) for operator in operators):
        states = [state[operator.uid] for state in old]
        change = _change(operator, states, is_chained=number > 0)
        parts = rescaled_states(operator, change, states, declarations, codec)
        stores = rescaled_stores(
            operator, [state["store"] for state in states], codec, kinds_of_deadlines(declarations)
        )
        columns = rescaled_columns(operator, [state.get("columns", {}) for state in states], codec)
        for of_subtask, part, store, of_columns in zip(new, parts, stores, columns, strict=True):
            of_subtask[operator.uid] = {**part, "store": store, **({"columns": of_columns} if of_columns else {})}
    return [codec.seal(BlobKind.STATE, (of_subtask, {})) for of_subtask in new]


def _change(operator: Operator, states: Sequence[Mapping[str, Any]], is_chained: bool) -> OperatorChange:
    gates = states[0]["gates"]
    if is_chained:
        of_chain = InputChange(Senders.MERGED, Exchange.FORWARD, Exchange.FORWARD, len(states), operator.parallelism)
        return OperatorChange(len(states), operator.parallelism, (of_chain,), len(gates))
    inputs = []
    for number, (channels, *_) in enumerate(gates):
        is_broadcast = operator.kind is OperatorKind.TWO_INPUT_BROADCAST and number == 1
        exchange = Exchange.BROADCAST if is_broadcast else Exchange.REBALANCE  # HASH has the same rules
        inputs.append(InputChange(Senders.SAME, exchange, exchange, channels, channels))
    return OperatorChange(len(states), operator.parallelism, tuple(inputs), len(gates))


def rescaled_stores(
    operator: Operator, old: Iterable[Any], codec: Codec, further_domains: Collection[int] = ()
) -> list[tuple[Any, ...]]:
    """Return the keyed stores of the new subtasks, for those of the old ones.

    ``further_domains``: Kinds of deadlines that not all operators have.
    """
    owner, remember = f"Keyed state of {operator}", operator.function.dsv2_remember_keys
    new = [PagedKeyedStore(codec, f"{owner}, subtask {index}", remember) for index in range(operator.parallelism)]
    moved: set[Any] = set()
    for store, domain in product(new, further_domains):
        store.add_domain(domain)
    for subtask, snapshot in enumerate(old):
        store = PagedKeyedStore(codec, owner, remember)
        store.restore(snapshot)
        for key in store:
            if key in moved:
                raise IncompatibleCheckpointError(f"Two subtasks of {operator} have state for the key {key!r}.")
            moved.add(key)
            target = new[owner_of(operator, key, subtask)]
            _move(key, store, target)
        _move_panes(operator, subtask, store, new)
    return [store.snapshot() for store in new]


def _move(key: Any, store: PagedKeyedStore, target: PagedKeyedStore) -> None:
    values = dict(store.columns_of(key))
    columns = {name: target.column(name) for name in values}
    target.touch(key)
    for name, value in values.items():
        columns[name][key] = value
    if entry := store.find(key):
        target.entry(key).update(entry)
        target.timers += timers_in(entry)


def _move_panes(operator: Operator, subtask: int, store: PagedKeyedStore, new: Sequence[PagedKeyedStore]) -> None:
    for pane in store.panes:
        for key, value in pane.take_all().items():
            panes = new[owner_of(operator, key, subtask)].panes
            same = panes.get(pane.slot)
            if same is None:
                same = panes.open(pane.slot, pane.deadline, pane.by_event, pane.layout)
            if (same.deadline, same.layout) != (pane.deadline, pane.layout):
                # The rows determine the deadline, so the function must lay them out again. Until then the earliest one
                # counts: a window may not be late, and a join waits if it is called too early.
                panes.hasten(same, min(same.deadline, pane.deadline))
                same.layout = ()
            same.live[key] = value
