"""``connect``, and the states of a job as values of the program."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, overload

from typing_extensions import TypeForm

from dsv2.base.json_values import key_json
from dsv2.base.type_variables import ACC, K, R, T, V
from dsv2.checks.arguments import as_milliseconds
from dsv2.checks.client_library import require_client_library
from dsv2.client.http import JobServer
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.jobs.live_state import ARROW_STREAM, DEFAULT_ROWS, MOST_ROWS, StateInfo
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint.arrow_values import value_maker
from dsv2.savepoint.table_state import form_of
from dsv2.state import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    ValueStateDeclaration,
)
from dsv2.state.types import classes_in

if TYPE_CHECKING:
    import pyarrow as pa

_RUNNING = ("running", "restarting")


def connect(
    url: str, *, token: str | None = None, job: str | None = None, timeout: timedelta = timedelta(seconds=60)
) -> JobClient:
    """Connect to a running job.

    Args:
        url: The address of its dashboard, such as ``http://127.0.0.1:8050``.
        token: The token of the dashboard. None (default): it is a part of ``url``, as the dashboard prints it.
        job: The name of the job. None (default): the only one that runs there.
        timeout: How long to wait for an answer.

    Raises:
        ConfigurationError: There is no such job, several run, the token is another one, or pyarrow is not installed.
        JobError: Nothing answers at ``url``.
    """
    require_client_library("pyarrow", "files", "dsv2.client")
    server = JobServer(url, token, as_milliseconds(timeout, "timeout", at_least=1) / 1000)
    found = [one for one in json.loads(server.get("/api/jobs")) if job in (None, one["name"])]
    running = [one for one in found if one["status"] in _RUNNING] or found[-1:]
    if len(running) != 1:
        names = ", ".join(repr(one["name"]) for one in running) or "none"
        raise ConfigurationError(f"Name the job, job=...: at {server.shown} there are {names}.")
    return JobClient(server, running[0]["id"], running[0]["name"])


class JobClient:
    """A job on a server. ``connect`` creates it.

    Attributes:
        name: The name of the job.
    """

    def __init__(self, server: JobServer, identifier: str, name: str) -> None:
        self._server = server
        self._path = f"/api/jobs/{identifier}"
        self.name = name

    def states(self) -> list[StateInfo]:
        """Return the states that can be read."""
        return [StateInfo(**one) for one in json.loads(self._server.get(f"{self._path}/states"))]

    @overload
    def state(
        self, operator: str, state: ValueStateDeclaration[T, Any] | ReducingStateDeclaration[T]
    ) -> RemoteState[Any, T]: ...
    @overload
    def state(self, operator: str, state: ListStateDeclaration[T]) -> RemoteState[Any, list[T]]: ...
    @overload
    def state(
        self, operator: str, state: MapStateDeclaration[K, V] | BroadcastStateDeclaration[K, V]
    ) -> RemoteState[Any, dict[K, V]]: ...
    @overload
    def state(self, operator: str, state: AggregatingStateDeclaration[Any, ACC, Any]) -> RemoteState[Any, ACC]: ...
    @overload
    def state(self, operator: str, state: str) -> RemoteState[Any, Any]: ...
    def state(self, operator: str, state: str | StateDeclaration) -> RemoteState[Any, Any]:
        """Return a state of an operator. Nothing is read yet.

        Args:
            operator: The uid of the operator.
            state: The declaration, so that values are of its type; or its name, then records are dicts, for example.
        """
        return RemoteState(self._server, self._path, operator, state)

    def sql(self, query: str, *, limit: int = DEFAULT_ROWS) -> pa.Table:
        """Return the result of a query in the SQL of DuckDB, which the job must have installed.

        The metadata of its schema are those of ``RemoteState.table``.

        Args:
            query: One SELECT. States are tables, such as ``totals.sum``, with the columns of ``RemoteState.table``. All
                are read as of the same micro-batch, into the memory of the job.
            limit: The maximum number of rows.

        Raises:
            ConfigurationError: The query is not valid, or a state has more than a million rows.
            JobError: As for ``RemoteState.get``, or the query takes too long.
        """
        body = {"query": query, "limit": limit}
        return _table_in(self._server.post(f"{self._path}/sql", body, accept=ARROW_STREAM))

    def __repr__(self) -> str:
        return f"<job {self.name!r} at {self._server.shown}>"


class RemoteState(Generic[K, V]):
    """A state of a running job, as of the last committed micro-batch at each call. ``JobClient.state`` returns it."""

    def __init__(
        self, server: JobServer, path: str, operator: str, state: str | StateDeclaration, key_type: object = Any
    ) -> None:
        self._server = server
        self._path = path
        self._operator = operator
        self._state = state
        self._make_key = value_maker(key_type)

    def with_key_type(self, key_type: TypeForm[R]) -> RemoteState[R, V]:
        """Return the same state with keys of a type, such as a dataclass."""
        return RemoteState(self._server, self._path, self._operator, self._state, key_type)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if it has none. The job reads one page of its state.

        Raises:
            ConfigurationError: There is no such operator, state or kind of key; or the value has no column type, and
                its class is not known here.
            JobError: The job has ended, has not completed a micro-batch, or does not answer.
        """
        values = self._values(self._rows({"key": _encoded(key)}))
        return values[0] if values else None

    def items(self, *, start: K | None = None, stop: K | None = None) -> list[tuple[K, V]]:
        """Return keys with their values, in no particular order. The job searches the whole state.

        Args:
            start: The first key. None: there is no lower bound.
            stop: The upper bound, which does not belong to the range. None: there is none.

        Raises:
            ConfigurationError: As for ``get``, or there are more than 100,000 keys.
            JobError: As for ``get``, or the search takes too long.
        """
        table = self.table(start=start, stop=stop, limit=MOST_ROWS)
        if table.schema.metadata[b"more"] == b"true":
            raise ConfigurationError(f"There are more than {MOST_ROWS:,} keys. Narrow the range, or take a savepoint.")
        if "key_bytes" in table.column_names:
            keys = [_decoded(key, self._shown) for key in table["key_bytes"].to_pylist()]
        else:
            keys = list(map(self._make_key, table["key"].to_pylist()))
        return list(zip(keys, self._values(table), strict=True))

    def table(self, *, start: K | None = None, stop: K | None = None, limit: int = DEFAULT_ROWS) -> pa.Table:
        """Return rows as a ``pyarrow.Table`` with the columns of a savepoint: ``subtask``, ``key`` and ``value``.

        The metadata of its schema have ``batch_id``, the micro-batch, and ``more``, whether there are more rows.
        Parameters and errors are those of ``items``. ``limit``: The maximum number of rows, up to 100,000.
        """
        bounds = {"start": start, "stop": stop}
        given = {name: _encoded(bound) for name, bound in bounds.items() if bound is not None}
        return self._rows({**given, "limit": str(limit)})

    def _rows(self, query: dict[str, str]) -> pa.Table:
        name = self._state if isinstance(self._state, str) else self._state.name
        asked = {"operator": self._operator, "state": name, **query}
        return _table_in(self._server.get(f"{self._path}/rows", asked, accept=ARROW_STREAM))

    def _values(self, table: pa.Table) -> list[V]:
        form = Any if isinstance(self._state, str) else form_of(self._state)
        if "value_bytes" in table.column_names:
            return [_decoded(value, self._shown, form) for value in table["value_bytes"].to_pylist()]
        return list(map(value_maker(form), table["value"].to_pylist()))

    @property
    def _shown(self) -> str:
        return f"State {self._state!r} of {self._operator!r}"

    def __repr__(self) -> str:
        return f"<{self._shown}>"


def _table_in(stream: bytes) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(stream) as reader:
        return reader.read_all()


def _encoded(key: Any) -> str:
    if key is None:
        raise ConfigurationError("A key cannot be None.")
    return json.dumps(key_json(key))


def _decoded(data: bytes, owner: str, form: object = Any) -> Any:
    """Return a value that has no column type."""
    try:
        return Codec(TypeRegistry().with_classes(classes_in(form))).loads(data, owner)
    except CorruptDataError as error:
        raise ConfigurationError(
            f"{owner}: a value is of a class that is not known here. Pass the declaration of the state. {error}"
        ) from error
