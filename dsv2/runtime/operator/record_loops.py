"""The hot loops: a run of records through one callback. Everything that can be looked up beforehand is.

A loop takes a list of records; a step takes one record and is what an operator chained upstream calls as its collector.
``stamped_loop`` takes timestamps too. All leave error handling to the (free) exception path, where
``fail(error, record, key)`` raises what is to be raised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from dsv2.functions import CollectAll, FailedRecordError, refuse_returned
from dsv2.graph import KeySelector
from dsv2.runtime.exchange.current_timestamp import CurrentTimestamp
from dsv2.runtime.exchange.frames import Timestamps
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.metrics import DefaultCounter
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState

__all__ = ("Fail", "keyed_loop", "keyed_run_loop", "keyed_step", "loop", "run_loop", "stamped_loop", "step")

Fail: TypeAlias = Callable[[BaseException, Any, Any], NoReturn]
_NO_RECORD: Any = None


def loop(process: Callable[..., object], args: tuple[Any, ...], fail: Fail) -> Callable[[Sequence[Any]], None]:
    """``process(record, *args)`` for each record."""
    if len(args) == 2:  # one output: saves building an argument tuple per record
        output, ctx = args

        def run(records: Sequence[Any]) -> None:
            record = _NO_RECORD
            try:
                for record in records:
                    returned = process(record, output, ctx)
                    if returned is not None:
                        refuse_returned(returned)
            except BaseException as error:
                fail(error, record, NO_KEY)

        return run

    def run_any(records: Sequence[Any]) -> None:
        record = _NO_RECORD
        try:
            for record in records:
                returned = process(record, *args)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            fail(error, record, NO_KEY)

    return run_any


def stamped_loop(
    process: Callable[..., object],
    args: tuple[Any, ...],
    fail: Fail,
    moment: CurrentTimestamp,
    select: KeySelector | None,
    store: PagedKeyedStore,
    partition: PartitionState,
) -> Callable[[Sequence[Any], Sequence[int | None]], None]:
    """``process(record, *args)`` for each record in the moment of its timestamp, with its key, if there is one.

    The caller ends the last moment.
    """
    touched, touch = store.touched, store.touch

    def run(records: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        record = key = NO_KEY
        try:
            for record, moment.timestamp in zip(records, timestamps, strict=True):
                if select is not None:
                    key = NO_KEY
                    selected = select(record)
                    if selected not in touched:
                        touch(selected)
                    partition.key = key = selected
                returned = process(record, *args)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            fail(error, record, key)
        finally:
            partition.key = NO_KEY

    return run


def run_loop(
    process_run: Callable[..., None], collect_all: CollectAll, fail: Fail
) -> Callable[[Sequence[Any], Timestamps], None]:
    """All records at once, for functions that take them so."""

    def run(records: Sequence[Any], timestamps: Timestamps) -> None:
        try:
            process_run(records, timestamps, collect_all)
        except FailedRecordError as failed:
            fail(failed.__cause__ or failed, failed.record, NO_KEY)

    return run


def keyed_run_loop(
    process_run: Callable[..., None],
    process: Callable[..., object],
    args: tuple[Any, ...],
    fail: Fail,
    moment: CurrentTimestamp,
    select: KeySelector,
    store: PagedKeyedStore,
    partition: PartitionState,
) -> Callable[[Sequence[Any], Sequence[int | None]], None]:
    """All records at once, for keyed functions that take them so; the usual way is ``process(record, *args)``."""
    touched, touch = store.touched, store.touch

    def process_one(record: Any, timestamp: int | None) -> None:
        try:
            key = select(record)
            if key not in touched:
                touch(key)
            partition.key = key
            moment.timestamp = timestamp
            returned = process(record, *args)
            if returned is not None:
                refuse_returned(returned)
        except BaseException as error:
            raise FailedRecordError(record) from error

    def key_of(record: Any) -> Any:
        try:
            key = select(record)
            hash(key)
            return NO_KEY if key is None else key
        except BaseException:
            return NO_KEY

    def run(records: Sequence[Any], timestamps: Sequence[int | None]) -> None:
        try:
            process_run(records, timestamps, select, process_one)
        except FailedRecordError as failed:
            fail(failed.__cause__ or failed, failed.record, key_of(failed.record))
        finally:
            partition.key = NO_KEY
            moment.timestamp = None

    return run


def keyed_loop(
    process: Callable[..., object],
    args: tuple[Any, ...],
    fail: Fail,
    select: KeySelector,
    store: PagedKeyedStore,
    partition: PartitionState,
) -> Callable[[Sequence[Any]], None]:
    """``process(record, *args)`` for each record, with its key as the current one."""
    touched, touch = store.touched, store.touch
    if len(args) == 2:
        output, ctx = args

        def run(records: Sequence[Any]) -> None:
            record = key = NO_KEY
            try:
                for record in records:
                    key = NO_KEY
                    selected = select(record)
                    if selected not in touched:
                        touch(selected)
                    partition.key = key = selected
                    returned = process(record, output, ctx)
                    if returned is not None:
                        refuse_returned(returned)
            except BaseException as error:
                fail(error, record, key)
            finally:
                partition.key = NO_KEY

        return run

    def run_any(records: Sequence[Any]) -> None:
        record = key = NO_KEY
        try:
            for record in records:
                key = NO_KEY
                selected = select(record)
                if selected not in touched:
                    touch(selected)
                partition.key = key = selected
                returned = process(record, *args)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            fail(error, record, key)
        finally:
            partition.key = NO_KEY

    return run_any


def step(
    process: Callable[..., object], args: tuple[Any, ...], fail: Fail, tally: DefaultCounter
) -> Callable[[Any], None]:
    """``process(record, *args)`` for one record handed over by a chained operator."""

    def collect(record: Any) -> None:
        tally.count += 1
        try:
            returned = process(record, *args)
            if returned is not None:
                refuse_returned(returned)
        except BaseException as error:
            fail(error, record, NO_KEY)

    return collect


def keyed_step(
    process: Callable[..., object],
    args: tuple[Any, ...],
    fail: Fail,
    tally: DefaultCounter,
    select: KeySelector,
    store: PagedKeyedStore,
    partition: PartitionState,
) -> Callable[[Any], None]:
    """``process(record, *args)`` for one record handed over by a chained operator, with its key as the current one."""
    touched, touch = store.touched, store.touch

    def collect(record: Any) -> None:
        tally.count += 1
        key = NO_KEY
        try:
            selected = select(record)
            if selected not in touched:
                touch(selected)
            partition.key = key = selected
            returned = process(record, *args)
            if returned is not None:
                refuse_returned(returned)
        except BaseException as error:
            fail(error, record, key)
        finally:
            partition.key = NO_KEY

    return collect
