"""Restores a new subtask from the rows of a savepoint, which the subtasks of another program may have written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

from dsv2.errors import CorruptDataError
from dsv2.graph import Operator
from dsv2.graph.state_detection import mentioned_names
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import Control
from dsv2.runtime.exchange.edges import EdgeEmitter, EdgeName
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.replay_rows import ReplayPlace, receiver_of, replayed_record
from dsv2.runtime.state.row_loader import RowLoader
from dsv2.runtime.state.rows import RowKind, StateRow

OperatorParts: TypeAlias = dict[str, Any]
"""The result of ``OperatorTask.snapshot``, without the keyed store."""

_MISFITS = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""The errors of code that gets other values than it has stored."""
_RESTORE = "It was changed or is damaged: restore it from a backup."

Announcement: TypeAlias = tuple[int, list[Control]]
"""A channel, numbered over all inputs, and control elements for it."""


class Succession(Protocol):
    """Decides how the subtasks of a new program continue those of the old one. The runtime provides it."""

    def parts(self, operator: Operator, subtask: int, old: Sequence[OperatorParts]) -> OperatorParts:
        """Return the parts of a new subtask from those of the old ones, which are ordered by index.

        Raises:
            IncompatibleCheckpointError: The parts cannot be carried to the new program.
        """

    def announcements(self, operator: Operator, subtask: int) -> Sequence[Announcement]:
        """Return what sources had sent before on the channels into a subtask of ``operator`` that are new."""

    def first_states(
        self, operator: Operator, subtask: int, given: Sequence[Mapping[str, bytes]]
    ) -> Mapping[str, bytes]:
        """Return the states of a new subtask of an operator that no program has run, but whose states were given."""

    def has_new_senders(self, uid: str, number: int) -> bool:
        """Return whether the operator ``uid`` is new, or its input ``number`` received from other operators before."""


class SubtaskRestore:
    """Collects the rows for one new subtask.

    A runtime calls ``add`` with all rows that do not belong to a key, and with those of the keys that the subtask owns,
    in any order. Then it calls ``finish`` once, instead of ``Subtask.open`` or ``Subtask.restore``.

    Args:
        tasks: The operators of the chain, downstream first.
        edges: The edges that leave the chain.
        chained_to: For each operator but the first, the uid of the operator to which it is chained.
        subtask: The index of the new subtask.
        succession: Decides about everything that is not keyed.
        codec: Decodes the rows.
        guarded: Runs an action, and closes the functions if it fails.
        receive: Processes control elements of channels, before the first micro-batch.
    """

    def __init__(
        self,
        tasks: Sequence[OperatorTask],
        edges: Iterable[EdgeEmitter],
        chained_to: Mapping[str, str],
        subtask: int,
        succession: Succession,
        codec: Codec,
        guarded: Callable[[Callable[[], object]], None],
        receive: Callable[[Sequence[Announcement]], None],
    ) -> None:
        self._tasks = tasks
        self._edges = {edge.name: edge for edge in edges}
        self._chained_to = chained_to
        self._subtask = subtask
        self._succession = succession
        self._codec = codec
        self._guarded = guarded
        self._receive = receive
        self._loaders: dict[str, RowLoader] = {task.operator.uid: task.row_loader() for task in tasks}
        self._parts: dict[str, dict[int, dict[str, Any]]] = {}  # by uid and old subtask
        self._states: dict[str, dict[int, dict[str, bytes]]] = {}  # states of the subtasks, likewise
        self._replays: list[tuple[int, str, StateRow]] = []  # with their order and uid
        self._positions: dict[EdgeName, dict[int, tuple[int, int]]] = {}  # by edge and old subtask

    def add(self, uid: str, rows: Iterable[StateRow]) -> None:
        """Add rows of the operator ``uid``, which is one of the chain.

        Raises:
            CorruptDataError: A row cannot be decoded.
        """
        loader = self._loaders[uid]
        load = loader.add
        for row in rows:
            try:
                if row.kind is RowKind.PART:
                    self._add_part(uid, row)
                elif row.kind is RowKind.SUBTASK_STATE:
                    if loader.is_declared(row):
                        assert row.state is not None
                        assert row.value is not None
                        self._states.setdefault(uid, {}).setdefault(row.subtask, {})[row.state] = row.value
                elif row.kind is RowKind.EDGE:
                    name, (frames, records) = self._decode(uid, row)
                    self._positions.setdefault(name, {})[row.subtask] = (int(frames), int(records))
                elif row.kind is RowKind.REPLAY:
                    self._add_replay(uid, row)
                else:
                    load(row)
            except _MISFITS as error:
                what = f"a row of kind {row.kind.value!r}" + ("" if row.state is None else f", {row.state!r},")
                raise CorruptDataError(
                    f"State of {uid}, subtask {row.subtask}: {what} has other contents than it must have: {error!r}. "
                    f"{_RESTORE}"
                ) from error

    def finish(self) -> None:
        """Restore the operators that the savepoint has, and open the others, which may have been given states.

        Raises:
            IncompatibleCheckpointError: The state of an operator cannot be carried to the new program.
            CorruptDataError: The savepoint lacks a row.
        """
        for task in self._tasks:
            self._loaders[task.operator.uid].finish()
            uid = task.operator.uid
            old, states = self._parts.get(uid), self._states.get(uid, {})
            if old is None:
                if states:
                    given = [states[index] for index in sorted(states)]
                    task.restore_states(self._succession.first_states(task.operator, self._subtask, given))
                self._guarded(task.open)
            else:
                parts = [{**old[index], "subtask_state": states.get(index, {})} for index in sorted(old)]
                used = mentioned_names(task.operator.function)
                try:
                    task.restore_parts(self._succession.parts(task.operator, self._subtask, parts))
                except _MISFITS as error:
                    raise CorruptDataError(
                        f"State of {uid}, subtasks {sorted(old)}: the rows of kind {RowKind.PART.value!r} are not "
                        f"complete, or have other contents than they must have: {error!r}. {_RESTORE}"
                    ) from error
                task.keep_fields(used)
        self._restore_edges()
        for _, uid, row in sorted(self._replays):
            self._process_again(uid, row)
        if announcements := self._succession.announcements(self._tasks[-1].operator, self._subtask):
            self._receive(announcements)

    def _restore_edges(self) -> None:
        """Continue the edges of the old program, and inform the consumers that are new."""
        restored = {task.operator.uid: task for task in self._tasks if task.operator.uid in self._parts}
        for name, edge in self._edges.items():
            positions = self._positions.get(name)
            if positions is not None:
                edge.succeed([positions[index] for index in sorted(positions)], self._subtask)
            elif name[0] in restored and self._succession.has_new_senders(name[2], name[3]):
                restored[name[0]].announce(edge.control)
        for task in self._tasks:
            upstream = self._chained_to.get(task.operator.uid)
            if upstream in restored and task.operator.uid not in restored:
                announce = partial(restored[upstream].announce, task.control_from_chain)
                self._guarded(announce)

    def _add_replay(self, uid: str, row: StateRow) -> None:
        (task,) = (task for task in self._tasks if task.operator.uid == uid)
        owner = f"A dead letter of {uid}"
        if receiver_of(task.operator, row, self._codec, owner) == self._subtask:
            self._replays.append((ReplayPlace.of(row, owner).order, uid, row))

    def _process_again(self, uid: str, row: StateRow) -> None:
        (task,) = (task for task in self._tasks if task.operator.uid == uid)
        owner = f"A dead letter of {uid}"
        record, timestamp = replayed_record(row, self._codec, owner)
        batch = RecordBatch([record], None if timestamp is None else [timestamp])
        number = ReplayPlace.of(row, owner).input
        self._guarded(lambda: task.process_again(number, batch))

    def _add_part(self, uid: str, row: StateRow) -> None:
        assert row.state is not None
        self._parts.setdefault(uid, {}).setdefault(row.subtask, {})[row.state] = self._decode(uid, row)

    def _decode(self, uid: str, row: StateRow) -> Any:
        owner = f"State of {uid}, subtask {row.subtask}"
        if row.value is None:
            raise CorruptDataError(f"{owner}: a row has no value.")
        return self._codec.loads(row.value, owner)
