"""The state of a running job: what can be asked, and the interface of jobs that answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

DEFAULT_ROWS: Final = 1_000
MOST_ROWS: Final = 100_000
ARROW_STREAM: Final = "application/vnd.apache.arrow.stream"
"""The media type of a stream of Arrow."""


@dataclass(frozen=True, slots=True)
class StateInfo:
    """A declared state.

    Attributes:
        operator: The uid of the operator.
        state: The name of the state.
        kind: The kind, such as ``ValueState``.
        has_keys: Whether it belongs to keys. Otherwise it belongs to subtasks.
    """

    operator: str
    state: str
    kind: str
    has_keys: bool


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A query of one state. Keys are JSON (``key_json``). None: not given.

    Attributes:
        operator: The uid of the operator.
        state: The name of the state.
        key: The only key.
        start: The first key of a range.
        stop: The end of a range, which does not belong to it.
        limit: The maximum number of rows.
    """

    operator: str
    state: str
    key: Any = None
    start: Any = None
    stop: Any = None
    limit: int = DEFAULT_ROWS


class StateResult(Protocol):
    """Rows of states, all as of the same micro-batch."""

    def to_json(self) -> bytes:
        """Return an object with ``batch_id``, ``more`` (whether there are more rows than the limit) and ``rows``."""

    def to_arrow_stream(self) -> bytes:
        """Return the table as a stream of Arrow. Its metadata have ``batch_id`` and ``more``."""


@runtime_checkable
class QueryableJob(Protocol):
    """A running job whose state can be read, as of the last micro-batch that is in its checkpoint.

    Its methods are called by other threads than that of the job. Reads do not wait for the running micro-batch.
    """

    def states(self) -> Sequence[StateInfo]:
        """Return the states that can be read."""

    def read_state(self, query: StateQuery) -> StateResult:
        """Read a state.

        Raises:
            ConfigurationError: There is no such operator, state or kind of key, or the job has no checkpoint.
            JobError: The job has ended, or has not completed a micro-batch.
        """

    def query_states(self, sql: str, limit: int) -> StateResult:
        """Return the result of a query in SQL, in which states are tables: ``operator.state``. Errors: as above."""
