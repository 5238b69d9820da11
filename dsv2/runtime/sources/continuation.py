"""Checks whether a source can continue at a position that an earlier program has recorded."""

from __future__ import annotations

from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.graph import Operator
from dsv2.runtime.sources.offsets import SourceOffset
from dsv2.sources import DataFrameSource, IndexedSource


def check_kind(operator: Operator, offset: SourceOffset) -> None:
    """Check that an offset is one of a source of this kind.

    Args:
        operator: The source.
        offset: The offset at which it is to continue.

    Raises:
        ConfigurationError: It is an offset of another kind of source.
    """
    if "streams" in offset:  # of a streaming DataFrame
        same = isinstance(operator.body, DataFrameSource)
    elif isinstance(operator.body, IndexedSource | DataFrameSource):
        same = "position" in offset
    else:
        same = "batch" in offset
    if not same:
        raise ConfigurationError(
            f"The source {operator}, defined at {operator.location}, is of another kind than the source whose position "
            f"the savepoint holds. Give it another uid to read from its beginning."
        )


def check_content(operator: Operator, offset: SourceOffset, count: int | None, unit: str = "records") -> None:
    """Check that a source whose records are counted has what was read before, and no more if it had ended.

    Args:
        operator: The source.
        offset: The offset at which it is to continue.
        count: The number of its records; None if it has no end.
        unit: What is counted.

    Raises:
        IncompatibleCheckpointError: It has less, or more.
    """
    read, has_ended = max(offset["position"], 0), bool(offset.get("ended"))
    who = f"The source {operator}, defined at {operator.location},"
    if has_ended and (count is None or count > read):
        holds = "has no end" if count is None else f"holds {count}"
        raise IncompatibleCheckpointError(
            f"{who} ended after {read} {unit} but now {holds}. A job that has reached the end of its "
            f"input cannot continue. Start it from the beginning with another checkpoint_location."
        )
    if not has_ended and count is not None and count < read:
        raise IncompatibleCheckpointError(
            f"{who} now holds {count} {unit}, but {read} were read before. Give it the same content as "
            f"before, followed by new content if any, or start from the beginning with another checkpoint_location."
        )
