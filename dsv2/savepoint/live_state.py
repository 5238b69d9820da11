"""Reads the committed state of a running job, as tables with the columns that a savepoint has."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from dsv2.base.clock import elapsed_ns, thread_ns
from dsv2.base.json_values import json_value, key_json, key_like
from dsv2.checkpoint.description import declared_states, describe_state
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError, InvalidKeyError, JobError
from dsv2.graph import Plan
from dsv2.jobs.live_state import StateInfo, StateQuery
from dsv2.runtime.report.base_job import BaseJob
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.runtime.state.migrations import Migrations, split_name, stored_name
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.columns import arrow_type
from dsv2.savepoint.editor_checks import listed
from dsv2.savepoint.metadata import own_states
from dsv2.savepoint.state_sql import query_tables
from dsv2.savepoint.tables import SavepointTable, TableId, without_expiry
from dsv2.state import RedistributionMode, StateDeclaration

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST_NS = 30_000_000_000  # the files of a state that is being read cannot be deleted
_LEAST_WORK_NS = 1_000_000
_REST = 3  # times as long as the work before it
_ROWS_AT_ONCE = 64
_MOST_ROWS_OF_SQL = 1_000_000  # of a state, which is in memory


class CommittedState(Protocol):
    """The state of a job as of a committed micro-batch. Micro-batches that follow do not change it.

    Attributes:
        batch_id: The micro-batch.
    """

    @property
    def batch_id(self) -> int:
        """The micro-batch."""

    def rows(self, uid: str) -> Iterator[StateRow]:
        """Return the rows of an operator."""

    def rows_near(self, uid: str, key: Any) -> Iterator[StateRow]:
        """Return the rows of a key of an operator, and some others: those that are read with it."""


@dataclass(frozen=True)
class StateRows:
    """Rows of a state (``StateResult``).

    Attributes:
        batch_id: The micro-batch after which the state was like this.
        table: The rows.
        more: Whether there are more rows than the limit.
    """

    batch_id: int
    table: pa.Table
    more: bool

    def to_json(self) -> bytes:
        """Return the rows as JSON."""
        rows = json_value(self.table.to_pylist())
        return json.dumps({"batch_id": self.batch_id, "more": self.more, "rows": rows}, allow_nan=False).encode()

    def to_arrow_stream(self) -> bytes:
        """Return the table as a stream of Arrow."""
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        notes = {"batch_id": str(self.batch_id), "more": json.dumps(self.more)}
        table = self.table.replace_schema_metadata(notes)
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return bytes(sink.getvalue())


class LiveState:
    """The states of a running job. Any thread may read them.

    Args:
        plan: The plan of the job.
        program: Its description.
        types: Its classes.
        committed: Gives access to the state of the last committed micro-batch.
    """

    def __init__(
        self,
        plan: Plan,
        program: ProgramDescription,
        types: DataTypes,
        committed: Callable[[Codec], AbstractContextManager[CommittedState]],
    ) -> None:
        require_client_library("pyarrow", "files", "Reading the state of a running job")
        self._program = program
        self._types = types
        self._committed = committed
        self._declared: Mapping[str, Mapping[str, StateDeclaration]] = {
            operator.uid: {name: states[name] for name in own_states(states)}
            for operator in plan.operators
            if (states := declared_states(operator))
        }
        self._keys: dict[str, Any] = {}  # one of each operator, which shows the class of its keys

    def states(self) -> Sequence[StateInfo]:
        """Return the states that can be read."""
        return [
            StateInfo(uid, name, describe_state(declaration).kind, _has_keys(declaration))
            for uid, states in self._declared.items()
            for name, declaration in states.items()
        ]

    def read(self, query: StateQuery) -> StateRows:
        """Read a state.

        Raises:
            ConfigurationError: There is no such operator, state or kind of key.
            JobError: It takes too long.
        """
        declaration = self._declaration(query)
        codec = Codec(self._types)  # not shared with other threads
        with self._committed(codec) as committed:
            rows = self._rows(committed, query, declaration, codec)
            found = list(islice(rows, query.limit + 1))
            table = self._table(query, declaration, found[: query.limit], codec)
            return StateRows(committed.batch_id, table, len(found) > query.limit)

    def query(self, sql: str, limit: int) -> StateRows:
        """Return the result of a query, in which states are tables: ``operator.state``.

        Raises:
            ConfigurationError: It is not one valid SELECT, or a state has too many rows.
            JobError: It takes too long.
        """
        codec = Codec(self._types)
        with self._committed(codec) as committed:

            def table_of(operator: str, state: str) -> pa.Table:
                asked = StateQuery(operator, state, limit=_MOST_ROWS_OF_SQL)
                declaration = self._declared[operator][state]
                rows = list(islice(self._rows(committed, asked, declaration, codec), _MOST_ROWS_OF_SQL + 1))
                if len(rows) > _MOST_ROWS_OF_SQL:
                    raise ConfigurationError(
                        f"State {state!r} of {operator!r} has more than {_MOST_ROWS_OF_SQL:,} rows. Take a savepoint, "
                        f"and query its files."
                    )
                return self._table(asked, declaration, rows, codec)

            tables = {
                (uid, name): partial(table_of, uid, name) for uid, states in self._declared.items() for name in states
            }
            found = query_tables(sql, tables, limit + 1)
            return StateRows(committed.batch_id, found.slice(0, limit), found.num_rows > limit)

    def _declaration(self, query: StateQuery) -> StateDeclaration:
        states = self._declared.get(query.operator)
        if states is None:
            raise ConfigurationError(
                f"The job has no operator {query.operator!r} with states. It has: {listed(self._declared)}."
            )
        if query.state not in states:
            raise ConfigurationError(
                f"Operator {query.operator!r} has no state {query.state!r}. It has: {listed(states)}."
            )
        declaration = states[query.state]
        if not _has_keys(declaration) and any(one is not None for one in (query.key, query.start, query.stop)):
            raise ConfigurationError(
                f"State {query.state!r} of {query.operator!r} belongs to subtasks. Read it without a key."
            )
        return declaration

    def _rows(
        self, committed: CommittedState, query: StateQuery, declaration: StateDeclaration, codec: Codec
    ) -> Iterator[StateRow]:
        """Return the rows of a query, with values of the current version."""
        if query.key is not None:
            key = self._key(committed, query, query.key, codec)
            near = () if key is None else committed.rows_near(query.operator, key)
            return (row for row in self._current(near, declaration, codec) if _key_of(row, codec) == key)
        rows = self._current(_in_time(committed.rows(query.operator)), declaration, codec)
        if query.start is None and query.stop is None:
            return rows
        start, stop = (self._key(committed, query, bound, codec) for bound in (query.start, query.stop))
        return (row for row in rows if _is_between(_key_of(row, codec), start, stop))

    def _key(self, committed: CommittedState, query: StateQuery, given: Any, codec: Codec) -> Any:
        """Return the key for which JSON stands; None if the operator has no keys, or nothing was given."""
        example = self._keys.get(query.operator)
        if example is None:
            found = (row.key for row in _in_time(committed.rows(query.operator)) if row.key is not None)
            first = next(found, None)
            if first is None:
                return None
            example = self._keys[query.operator] = codec.loads(first, f"A key of {query.operator!r}")
        try:
            key = None if given is None else key_like(example, given)
            stable_hash(key)
        except (InvalidKeyError, ValueError) as error:
            raise ConfigurationError(
                f"Keys of {query.operator!r} are of the type {type(example).__qualname__}: {shorten(given)} does not "
                f"stand for one. A key is given like {json.dumps(key_json(example))}."
            ) from error
        return key

    def _current(self, rows: Iterable[StateRow], declaration: StateDeclaration, codec: Codec) -> Iterator[StateRow]:
        """Return the rows of a state. Values of earlier versions are converted, as the job does when it uses them."""

        def fail(state: StateDeclaration, key: Any, error: BaseException) -> NoReturn:
            raise JobError(
                f"The converter of state {state.name!r} raised for the key {shorten(key)}: {error}"
            ) from error

        migrations = Migrations([declaration], fail)
        for row in rows:
            if not row.kind.is_of_state or split_name(row.state or "")[0] != declaration.name:
                continue
            if row.state == stored_name(declaration):
                yield row
            elif migrations.outdated(row.state or "") is not None:
                content = migrations.convert(row.state or "", _key_of(row, codec), _loaded(row.value, codec))
                if content is not None:
                    yield row._replace(state=stored_name(declaration), value=codec.dumps(content))

    def _table(
        self, query: StateQuery, declaration: StateDeclaration, rows: Sequence[StateRow], codec: Codec
    ) -> pa.Table:
        import pyarrow as pa

        if not rows:
            return self._empty(declaration)
        table_id = TableId.of(query.operator, rows[0].kind, rows[0].state)
        layout = SavepointTable.of(table_id, "", rows[0], self._program, codec)
        if layout.value is None and rows[0].kind is RowKind.EXPIRING:  # readers have no use for the expiry
            rows = [row._replace(value=codec.dumps(without_expiry(_loaded(row.value, codec)))) for row in rows]
        batches, pace = [], _Pace()
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            batches.append(layout.batch(rows[first : first + _ROWS_AT_ONCE], codec))
            pace.rest()
        table = pa.Table.from_batches(batches).combine_chunks().select(layout.shown_columns)
        if query.key is not None and layout.value is not None and table["value"].null_count:
            value = _loaded(rows[0].value, codec)
            if (without_expiry(value) if rows[0].kind is RowKind.EXPIRING else value) is not None:
                raise ConfigurationError(f"The value {shorten(value)} does not fit the column {table['value'].type}.")
        return table

    def _empty(self, declaration: StateDeclaration) -> pa.Table:
        """A table without rows. The type of keys is not known."""
        import pyarrow as pa

        column = describe_state(declaration).column
        value = ("value_bytes", pa.binary()) if column is None else ("value", arrow_type(column))
        keys = [("key", pa.null())] if _has_keys(declaration) else []
        return pa.schema([("subtask", pa.int32()), *keys, value]).empty_table()


class QueryableHandle(BaseJob):
    """Answers questions about the state of its job (``QueryableJob``). A base class of job handles."""

    @abstractmethod
    def _live_state(self) -> LiveState:
        """Return the states of the run. Raises ``ConfigurationError`` if none is committed."""

    def states(self) -> Sequence[StateInfo]:
        """Return the states that can be read while the job runs."""
        return self._running_state().states()

    def read_state(self, query: StateQuery) -> StateRows:
        """Read a state as of the last committed micro-batch."""
        return self._running_state().read(query)

    def query_states(self, sql: str, limit: int) -> StateRows:
        """Query states as of the last committed micro-batch."""
        return self._running_state().query(sql, limit)

    def _running_state(self) -> LiveState:
        if self._is_over():
            raise JobError(
                f"The job {self._plan.job_name!r} has ended. To read its state, take a savepoint of its checkpoint: "
                f"dsv2 savepoint create."
            )
        return self._live_state()


def no_micro_batch(job_name: str) -> JobError:
    """Return the error of a job whose run has not committed a micro-batch."""
    return JobError(f"The job {job_name!r} has not completed a micro-batch since it started. Ask again.")


def _has_keys(declaration: StateDeclaration) -> bool:
    return declaration.redistribution_mode is RedistributionMode.NONE


def _loaded(data: bytes | None, codec: Codec) -> Any:
    return codec.loads(data or b"", "A value of a state")


def _key_of(row: StateRow, codec: Codec) -> Any:
    return None if row.key is None else codec.loads(row.key, "A key of a state")


def _is_between(key: Any, start: Any, stop: Any) -> bool:
    try:
        return (start is None or bool(start <= key)) and (stop is None or bool(key < stop))
    except TypeError as error:
        raise ConfigurationError(f"Keys such as {shorten(key)} have no order, so there is no range of them.") from error


class _Pace:
    """Lets a search rest, so that the thread of the job seldom waits for the interpreter."""

    def __init__(self) -> None:
        self._began, self._rested = elapsed_ns(), thread_ns()

    def rest(self) -> None:
        """Called often. Raises ``JobError`` if the search takes too long."""
        if (worked := thread_ns() - self._rested) >= _LEAST_WORK_NS:
            time.sleep(_REST * worked / 1e9)
            self._rested = thread_ns()
        if elapsed_ns() - self._began > _LONGEST_NS:
            raise JobError(
                f"The state is too large to be searched while the job runs: it takes more than "
                f"{_LONGEST_NS // 10**9} s. Read single keys, or take a savepoint and read its files."
            )


def _in_time(rows: Iterable[StateRow]) -> Iterator[StateRow]:
    """Pass rows on at a slow pace."""
    pace = _Pace()
    for row in rows:
        yield row
        pace.rest()
