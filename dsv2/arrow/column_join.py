"""The base of joins with declared results on columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates import WindowEnd, WindowStart
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.functions import TableFunction
from dsv2.arrow.keyed.lists import ArrowKeyedLists
from dsv2.arrow.records import keys_of, records_of
from dsv2.extension.join.declared import KeyField, Left, ResultField, Right
from dsv2.extension.join.functions import JoinType
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import EmitBatch, TwoInputColumnarFunction
from dsv2.state import ListStateDeclaration, StateDeclaration
from dsv2.watermark import Watermark, WatermarkHandlingResult

NONE = -1
"""The place of a partner that is missing."""


class Declared(NamedTuple):
    """A join on columns.

    Attributes:
        result: The class of the results.
        sources: What each of its fields holds.
        kinds: The classes of the left and of the right records.
        names: The fields that are their keys.
        join_type: The join type.
    """

    result: type[Any]
    sources: Mapping[str, ResultField]
    kinds: Sequence[type[Any]]
    names: Sequence[Sequence[str]]
    join_type: JoinType


class ColumnJoin(TwoInputColumnarFunction[Any], TableFunction[Any, Any], ABC):
    """Base class of the joins."""

    def __init__(self, join: Declared, states: Sequence[ListStateDeclaration[Any]]) -> None:
        self.join = join
        self._states = tuple(states)

    @property
    def record_types(self) -> tuple[type, ...]:
        return (*self.join.kinds, self.join.result)

    @property
    @abstractmethod
    def state_layout(self) -> str: ...

    def uses_states(self) -> Collection[StateDeclaration]:
        return self._states

    def on_watermark_from_first_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    def on_watermark_from_second_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    def end_first_input(self, output: Any, ctx: Any) -> None:
        """Nothing depends on the end of one input."""

    def end_second_input(self, output: Any, ctx: Any) -> None:
        """Likewise."""

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        return emit

    def _lists(self, side: int, ctx: Any) -> ArrowKeyedLists[Any]:
        lists: ArrowKeyedLists[Any] = ctx.keyed_state(self._states[side])
        return lists

    def _keys(self, side: int, table: pa.Table) -> list[pa.ChunkedArray]:
        return keys_of(table, self.join.names[side])

    def _emit(
        self,
        output: Any,
        rows: Sequence[pa.Table],
        places: Sequence[Numbers],
        times: Any,
        windows: tuple[Numbers, Numbers] | None = None,
    ) -> None:
        """Emit the results of pairs.

        Args:
            output: The collector.
            rows: The rows of both sides.
            places: For each result the place of the partner of each side, or ``NONE``.
            times: The timestamps of the results.
            windows: The start and the end of the window of each result.
        """
        if not len(places[0]):
            return
        indices = [pa.array(of_side, mask=of_side < 0) for of_side in places]
        columns = {}
        for name, source in self.join.sources.items():
            match source:
                case Left(field=field):
                    columns[name] = rows[0][field].take(indices[0])
                case Right(field=field):
                    columns[name] = rows[1][field].take(indices[1])
                case KeyField(field=field):
                    columns[name] = rows[0][field].take(indices[0])
                    if (places[0] < 0).any():
                        columns[name] = pc.coalesce(columns[name], rows[1][field].take(indices[1]))
                case WindowStart() | WindowEnd():
                    assert windows is not None
                    columns[name] = pa.array(windows[isinstance(source, WindowEnd)])
        output.collect_batch(RecordBatch(records_of(pa.table(columns), self.join.result), times))


def in_order(
    side: int, own: tuple[pa.Table, Numbers], other: tuple[pa.Table, Numbers]
) -> tuple[tuple[pa.Table, pa.Table], tuple[Numbers, Numbers]]:
    """The rows and places of the left and of the right side. ``side``: the side that ``own`` is."""
    (left, of_left), (right, of_right) = (other, own) if side else (own, other)
    return (left, right), (of_left, of_right)
