"""The rows of a Spark DataFrame as a source."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dsv2.arguments import check_whole_number
from dsv2.errors import ConfigurationError
from dsv2.sources.base import BaseSource

__all__ = ("DataFrameLike", "DataFrameSource")

T = TypeVar("T")


class DataFrameLike(Protocol):
    """The part of a Spark DataFrame that the plan looks at."""

    @property
    def isStreaming(self) -> bool:  # noqa: N802 - Spark's name
        """Whether the DataFrame is a streaming one."""


class DataFrameSource(BaseSource[T], Generic[T]):
    """The rows of a Spark DataFrame, streaming or batch, as records of ``record_type``. Needs the Spark runtime.

    ``record_type`` is a dataclass, a NamedTuple class, ``dict`` or ``pyspark.sql.Row``; the fields of the first two
    are looked up by name among the columns. Rows with the same value in column ``split_by`` reach the same source
    subtask in the order of the DataFrame; without it that holds for the rows of one DataFrame partition.
    A batch DataFrame in a streaming job is fed at most ``records_per_batch`` rows a micro-batch.
    """

    def __init__(
        self,
        dataframe: DataFrameLike,
        record_type: type[T],
        *,
        split_by: str | None = None,
        records_per_batch: int | None = None,
    ) -> None:
        if not hasattr(dataframe, "isStreaming"):
            raise ConfigurationError(f"from_dataframe takes a Spark DataFrame, not {type(dataframe).__name__}.")
        if records_per_batch is not None:
            check_whole_number(records_per_batch, "records_per_batch")
        self.dataframe = dataframe
        self.record_type = record_type
        self.split_by = split_by
        self.records_per_batch = records_per_batch

    @property
    def bounded(self) -> bool:
        return not self.dataframe.isStreaming
