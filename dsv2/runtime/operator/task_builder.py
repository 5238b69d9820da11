"""Builds the task of a function from its parts."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.model.error_policy import ErrorPolicy
from dsv2.runtime.exchange.barrier_rounds import BarrierRounds
from dsv2.runtime.exchange.collector import HeldOutput
from dsv2.runtime.exchange.emitter import Emitter
from dsv2.runtime.exchange.gate import ExpiryHooks, InputGate, KeyHooks
from dsv2.runtime.operator.attempting_calls import AttemptingCalls
from dsv2.runtime.operator.function_calls import CallEnvironment, FunctionCalls, Timing
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.input_activity import InputActivity
from dsv2.runtime.operator.input_watermarks import InputWatermarks
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.key_watermarks import KeyWatermarks
from dsv2.runtime.operator.operator_task import OperatorTask, TaskInputs
from dsv2.runtime.operator.operator_time import OperatorTime
from dsv2.runtime.operator.output_controls import OutputControls
from dsv2.runtime.operator.timed_calls import TimedCalls
from dsv2.runtime.operator.waiting_input import WaitingInput
from dsv2.runtime.operator.watermark_expiry import WatermarkExpiry
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.page_store import PageStore
from dsv2.runtime.state.timers import TimerService
from dsv2.runtime.state.undo import UndoableKeyedStore, UndoLog
from dsv2.spi import AsyncFunction
from dsv2.watermark.event_time import EventTimeOfInputs


def new_calls(environment: CallEnvironment, policy: ErrorPolicy | None, undo: UndoLog) -> FunctionCalls:
    """Return the calls of a function.

    Args:
        environment: The function and what its subtask provides for calling it.
        policy: What to do about errors.
        undo: Undoes changes of state, if the function is asynchronous or there is a policy.
    """
    if isinstance(environment.instance.function, AsyncFunction):
        from dsv2.runtime.operator.async_calls import AsyncCalls  # asyncio takes long to import

        return AsyncCalls(environment, policy, undo)
    if policy is not None:
        return AttemptingCalls(environment, policy, undo, HeldOutput())
    return FunctionCalls(environment)


def build_task(
    instance: FunctionInstance, channels: Sequence[int], outputs: Sequence[Emitter], job: JobContext
) -> OperatorTask:
    """Build the task of a function.

    Args:
        instance: The function and its operator.
        channels: The number of channels of each input.
        outputs: An emitter for each output, side outputs last.
        job: Shared by all subtasks of the job.
    """
    operator, declarations = instance.operator, job.declarations
    owner = f"Keyed state of {instance.place}"
    gates: list[InputGate] = []  # last, because they call the task

    def now_ms() -> int:
        return job.time.now_ms

    def page_store(name: str, owner: str) -> PageStore:
        return job.page_stores(f"{operator.uid}/{name}", owner)  # each operator of the chain has its own

    undo = UndoLog()
    keyed = (job.codec, owner, instance.function.dsv2_remember_keys, page_store)
    undoes = isinstance(instance.function, AsyncFunction) or operator.error_policy is not None
    store = UndoableKeyedStore(*keyed, undo) if undoes else PagedKeyedStore(*keyed)
    controls = OutputControls(outputs, job.time)
    event_time = EventTimeOfInputs(len(channels))
    activity = InputActivity(gates, event_time, controls.event_time.forward_status)
    event_timers = TimerService(Domain.EVENT_TIME, store)
    processing_timers = TimerService(Domain.PROCESSING_TIME, store)
    environment = CallEnvironment(
        instance,
        outputs,
        job,
        store,
        Timing(event_time, event_timers, processing_timers),
        controls.emit_watermark,
        activity.all_ended,
        columns=ColumnsEnvironment.of(operator, instance.subtask, job, page_store, owner, event_time),
    )
    calls = new_calls(environment, operator.error_policy, undo)
    timed = TimedCalls(calls, job.elapsed_ns)
    combined = InputWatermarks(operator, declarations, activity.inactive, controls.send, now_ms)
    rounds = BarrierRounds(declarations, instance.place, now_ms, lambda name, n: calls.metrics.counter(name).inc(n))
    keys = KeyWatermarks(
        instance,
        declarations,
        store,
        gates,
        calls,
        lambda number, watermark: timed.run(calls.key_watermark, number, watermark),
        controls.send,
        now_ms,
    )
    wait = operator.broadcast_wait
    waiting = None if wait is None else WaitingInput(wait, gates, instance)
    inputs = TaskInputs(gates, activity, combined, rounds, WatermarkExpiry(gates, combined, keys), waiting)
    time = OperatorTime(event_time, activity, gates, timed, controls.event_time, job)
    task = OperatorTask(instance, job, store, timed, inputs, time, controls)
    listener = calls.gate_listener(task)
    expiry = ExpiryHooks(now_ms, calls.in_place(combined.refresh))
    of_keys = KeyHooks(calls.in_place(keys.received), keys.changed)
    gates += (
        InputGate(index, count, declarations, listener, expiry, of_keys, rounds) for index, count in enumerate(channels)
    )
    return task
