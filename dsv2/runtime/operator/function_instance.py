"""The function of one operator in one subtask, and how its failures are reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from dsv2.functions import ProcessFunction
from dsv2.graph import Operator
from dsv2.runtime.exchange.position_tracing import CurrentPosition
from dsv2.runtime.report.failure import NO_KEY, NO_RECORD, raise_user_failure


@dataclass(frozen=True, slots=True)
class FunctionInstance:
    """A function in a subtask.

    Attributes:
        operator: Its operator.
        subtask: The index of the subtask.
        function: The function, which is not shared with other subtasks.
        origin: The position of the current record. None: records are not traced.
    """

    operator: Operator
    subtask: int
    function: ProcessFunction
    origin: CurrentPosition | None = None

    @property
    def place(self) -> str:
        """The operator and the subtask, for errors."""
        return f"{self.operator}, defined at {self.operator.location}, subtask {self.subtask}"

    def fail(self, callback: str, error: BaseException, record: Any = NO_RECORD, key: Any = NO_KEY) -> NoReturn:
        """Raise the error that the user sees. Call it while handling ``error``, an exception of ``callback``."""
        position = None if self.origin is None or record is NO_RECORD else self.origin.position
        raise_user_failure(self.operator, self.subtask, callback, error, record=record, key=key, position=position)
