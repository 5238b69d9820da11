"""A source that reads a Spark DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol

from dsv2.base.type_variables import T
from dsv2.checks.arguments import check_at_least_one
from dsv2.errors import ConfigurationError
from dsv2.sources.base import BaseSource

if TYPE_CHECKING:
    from typing_extensions import TypeIs


class DataFrameLike(Protocol):
    """The part of the Spark DataFrame API that building a plan requires."""

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - Spark's name
        """True if this is a streaming DataFrame."""


class TableLike(Protocol):
    """A pandas DataFrame or an Arrow table."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""


class ArrowStream(Protocol):
    """A table with the PyCapsule interface of Arrow, such as a DataFrame of Polars or a relation of DuckDB."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with an Arrow stream."""


def is_table(value: object) -> TypeIs[TableLike | ArrowStream]:
    """Return whether ``value`` is a table of pandas, Arrow or a library with its interface. Imports none of them."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("pandas", "pyarrow"):
        return True
    return hasattr(kind, "__arrow_c_stream__") and not hasattr(kind, "isStreaming")  # which a DataFrame of Spark has


class DataFrameSource(BaseSource[T], Generic[T]):
    """Reads the rows of a Spark DataFrame, streaming or batch. Requires the Spark runtime.

    Args:
        dataframe: The DataFrame.
        record_type: The class of the records: a dataclass, a NamedTuple, ``dict`` or ``pyspark.sql.Row``. The fields of
            a dataclass or NamedTuple are matched with columns by name.
        split_by: A column. Rows with the same value reach the same source subtask, in the order of the DataFrame.
            None: the same holds for the rows of each partition of the DataFrame.
        records_per_batch: The maximum rows of a batch DataFrame in a micro-batch of a STREAMING job. None: no limit.

    Raises:
        ConfigurationError: An argument is invalid.
    """

    dsv2_refuses_error_policy = "Spark reads it. Use an option of Spark's reader, or check the records in a function."

    def __init__(
        self,
        dataframe: DataFrameLike,
        record_type: type[T],
        *,
        split_by: str | None = None,
        records_per_batch: int | None = None,
    ) -> None:
        if not hasattr(dataframe, "isStreaming"):
            found = type(dataframe).__name__
            raise ConfigurationError(
                f"from_dataframe takes a DataFrame of Spark or pandas, or an Arrow table, not a {found}."
            )
        check_at_least_one(records_per_batch=records_per_batch)
        self.dataframe = dataframe
        self.record_type = self.dsv2_record_type = record_type
        self.split_by = split_by
        self.records_per_batch = records_per_batch

    @property
    def bounded(self) -> bool:
        return not self.dataframe.isStreaming


class ContinuedDataFrameSource(DataFrameSource[T], Generic[T]):
    """Reads a DataFrame that a runtime makes of the records of another stream of the same job.

    Args:
        sink: The sink that marks where the other stream ends.
        record_type: As for ``DataFrameSource``.
        split_by: As for ``DataFrameSource``.
    """

    def __init__(self, sink: object, record_type: type[T], *, split_by: str | None = None) -> None:
        super().__init__(_Continued(), record_type, split_by=split_by)
        self.sink = sink


class _Continued:
    """Stands for a DataFrame that does not exist yet. As far as the plan can tell, it ends."""

    isStreaming: Any = False  # noqa: N815 - Spark's name
