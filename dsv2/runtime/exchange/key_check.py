"""Checks the keys of records that reach a keyed operator without an exchange, as the exchange would have done."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

from dsv2.base.columnar import ComputedKey, column_names
from dsv2.errors import InvalidKeyError
from dsv2.graph import Edge, KeySelector, Operator
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.emitter import Emitter, InspectingEmitter
from dsv2.runtime.exchange.position_tracing import CurrentPosition
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.state.key_groups import not_hashable, subtask_of

_CHECKED_KEYS = 1 << 18


class KeyCheck(InspectingEmitter):
    """Emits to a keyed operator in the same subtask. An invalid key fails as a failure of the key selector."""

    __slots__ = ("_checked", "_columns", "_origin", "_select", "_subtask", "_target")

    def __init__(
        self, inner: Emitter, edge: Edge, target: Operator, subtask: int, origin: CurrentPosition | None
    ) -> None:
        """``inner``: An emitter to ``target``. ``origin``: If records are traced."""
        assert edge.key_selector is not None
        super().__init__(inner, self._check)
        self._target = target
        self._subtask = subtask
        self._origin = origin
        self._select: KeySelector = edge.key_selector
        self._columns = column_names(edge.key_selector)
        self._checked: set[Any] = set()

    def emit_batch(self, batch: RecordBatch[Any]) -> None:
        if not self._has_valid_columns(batch):
            check = self._check
            if isinstance(self._columns, ComputedKey):
                self._columns.prepare(batch.records)
            for record in batch.rows():
                check(record)
        self._inner.emit_batch(batch)

    def _has_valid_columns(self, batch: RecordBatch[Any]) -> bool:
        if self._columns is not None and batch.is_columnar:
            with contextlib.suppress(InvalidKeyError):  # checking the rows names the record
                return batch.split(self._columns, self._target.max_parallelism, 1) is not None
        return False

    def _check(self, record: Any) -> None:
        try:
            key = self._select(record)
            try:
                is_checked = key in self._checked
            except TypeError as error:
                raise not_hashable(key, error) from error
            if not is_checked:
                self._add(key)
        except BaseException as error:
            self._fail(record, error)

    def _add(self, key: Any) -> None:
        subtask_of(key, self._target.max_parallelism, 1)
        if len(self._checked) >= _CHECKED_KEYS:
            self._checked.clear()
        self._checked.add(key)

    def _fail(self, record: Any, error: BaseException) -> NoReturn:
        position = None if self._origin is None else self._origin.position
        raise_user_failure(self._target, self._subtask, "key selector", error, record=record, position=position)
