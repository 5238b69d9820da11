"""The function of one operator in one subtask, and whom to blame for what it raises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from dsv2.functions import ProcessFunction
from dsv2.graph import Operator
from dsv2.runtime.report.failure import NO_KEY, NO_RECORD, raise_user_failure

__all__ = ("FunctionInstance",)


@dataclass(frozen=True, slots=True)
class FunctionInstance:
    """``function``: an object of this subtask's own."""

    operator: Operator
    subtask: int
    function: ProcessFunction

    def fail(self, callback: str, error: BaseException, record: Any = NO_RECORD, key: Any = NO_KEY) -> NoReturn:
        """Raise what ``error`` out of ``callback`` is to the user; call it while handling ``error``."""
        raise_user_failure(self.operator, self.subtask, callback, error, record=record, key=key)
