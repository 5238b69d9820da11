"""Faults of operators: their inputs, event time, and what they send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.runtime.exchange.frames import ChannelWriter
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.input_activity import InputActivity
from dsv2.runtime.operator.input_watermarks import InputWatermarks
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.watermark.event_time import EventTimeOfInputs
from tests.proofs.mutations.mutation import Mutation, controls_first, nothing


def _without_part(name: str, empty: Any) -> Callable[[Any], Any]:
    def make(original: Any) -> Any:
        def snapshot(self: Any) -> dict[str, Any]:
            return {**original(self), name: empty}

        return snapshot

    return make


def _end_of_the_first_input(original: Any) -> Any:
    def all_ended(self: Any) -> bool:
        return bool(self.ended)

    return all_ended


def _ignore_idle_inputs(original: Any) -> Any:
    def set_idle(self: Any, index: int, idle: bool) -> Any:
        return None

    return set_idle


def _settle_the_ended(original: Any) -> Any:
    def settle(self: Any) -> None:
        original(self)
        self._report_idle()

    return settle


OPERATORS = [
    Mutation("the combination of the inputs is not restored",
     "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward", "restart", OperatorTask,
     "snapshot", _without_part("across_inputs", {})),
    Mutation("watermarks overtake the records of their frame",
     "two operators, 2 subtasks of 1 channels, MIN (wait for none), frames of 2", "cut", ChannelWriter, "control",
     controls_first),
    Mutation("the values of an idle input hold back the other one",
     "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward", "model", InputWatermarks,
     "set_idle", nothing),
    Mutation("the operator ends with its first input",
     "operator, inputs of 1 and 1 channels, MIN (wait for none), forward", "model", InputActivity, "all_ended",
     _end_of_the_first_input),
    Mutation("an input that becomes idle holds event time back, as in Flink",
     "operator, inputs of 1 and 1 channels, event time, forward", "progress", EventTimeOfInputs, "set_idle",
     _ignore_idle_inputs),
    Mutation("an operator does not say that it is idle", "two operators, 2 subtasks of 1 channels, event time", "model",
     TimeSender, "forward_status", nothing),
    Mutation("an input that ended while idle is active after a restart",
     "operator, inputs of 1 and 1 channels, MIN (wait for all, across inputs), forward", "restart", InputGate, "settle",
     _settle_the_ended),
]  # fmt: skip
