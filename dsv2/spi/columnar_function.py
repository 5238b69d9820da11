"""The base of functions that process columns. Users subclass the ones in ``dsv2.arrow``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NoReturn

from dsv2.base.type_variables import IN_contra, OUT_co
from dsv2.model.record_batch import RecordBatch
from dsv2.spi.keyed_columns import KeyedColumns
from dsv2.spi.kinds import EmitBatch
from dsv2.spi.process_function import ProcessFunction


class ColumnarFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function with one output that is called with batches of records, on keyed streams as well.

    Its other callbacks are those of a function on single records, except that those for the end of an input also
    receive the collector. All keys of the subtask form one partition.
    """

    dsv2_refuses_error_policy = "it does not process single records. Check the records in a function before it."

    @property
    @abstractmethod
    def record_types(self) -> Sequence[type]:
        """The classes of the records and of their state: those of the inputs first, that of the output last."""

    @property
    def dsv2_tables_of(self) -> type | None:
        """The class that the records of its input must have; None if their fields are matched by name."""
        return None

    @property
    def state_layout(self) -> str:
        """As for a ``WrappingFunction``, of one that keeps the same state on single records. Empty: none."""
        return ""

    @property
    def contents(self) -> str:
        """As for a ``WrappingFunction``."""
        return ""

    @abstractmethod
    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        """Process records of one channel, columnar or not. There is no current key and no current timestamp."""

    def dsv2_columns_callback(self, input_index: int) -> Callable[[RecordBatch[Any], Any, Any], None]:
        """Return what processes the records of an input: ``dsv2_process_columns``, if there is only one."""
        return self.dsv2_process_columns

    @abstractmethod
    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        """Return the ``collect_batch`` of the function's collector; it passes each table to ``emit`` as a batch."""

    @abstractmethod
    def dsv2_keyed_columns(self, environment: Any, fail: Callable[..., NoReturn]) -> KeyedColumns:
        """Create the keyed states and timers of a subtask.

        Args:
            environment: A ``ColumnsEnvironment`` of the runtime.
            fail: Called with the state, the key and the error, if a converter of a state raises an exception.
        """


class TwoInputColumnarFunction(ColumnarFunction[Any, OUT_co], ABC, Generic[OUT_co]):
    """A ``ColumnarFunction`` with two inputs, which are not broadcast."""

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        self.dsv2_process_side(0, batch, output, ctx)

    def dsv2_columns_callback(self, input_index: int) -> Callable[[RecordBatch[Any], Any, Any], None]:
        return partial(self.dsv2_process_side, input_index)

    @abstractmethod
    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        """Process records of the first input (0) or of the second one (1), as ``dsv2_process_columns`` does."""
