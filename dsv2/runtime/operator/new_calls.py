"""Chooses how a function is called: asynchronously, with an error policy, or directly."""

from __future__ import annotations

from dsv2.model.error_policy import ErrorPolicy
from dsv2.runtime.exchange.collector import HeldOutput
from dsv2.runtime.operator.attempting_calls import AttemptingCalls
from dsv2.runtime.operator.function_calls import CallEnvironment, FunctionCalls
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import AsyncFunction


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
