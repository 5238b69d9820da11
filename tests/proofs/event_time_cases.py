"""Cases of event time with its status and its flag: the other cases have two values, and no flag."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from dsv2.extension.event_time import EventTimeExtension
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME, USE_PROCESSING_TIME
from tests.proofs.bounds import Bounds
from tests.proofs.components import gate_component, subtask_component
from tests.proofs.events import letters
from tests.proofs.explorer import Case, Planned
from tests.proofs.invariants import Judged
from tests.proofs.plans import TIME, chain_plan, declared, operator_plan
from tests.proofs.systems import GateSystem, SubtaskSystem
from tests.support import Signal, watermark

_RULES = {EVENT_TIME: TIME}
_FLAG = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION
_DECLARED = {**declared([TIME]), USE_PROCESSING_TIME: _FLAG}


def event_time_cases(bounds: Bounds) -> list[Planned]:
    """All of them."""
    return [
        *(
            Planned(f"event time, gate, {channels} channels, {values} values{_named(flag)}", partial(_gate_case, *one))
            for one in bounds.times
            for channels, values, flag in [one]
        ),
        *(
            Planned(
                f"event time and flag, inputs of {' and '.join(map(str, inputs))} channels",
                partial(_operator, inputs, values),
            )
            for inputs, values in bounds.times_of_inputs
        ),
        *(
            Planned(f"event time and flag, two operators, {subtasks} subtasks", partial(_two_operators, subtasks))
            for subtasks in bounds.time_chains
        ),
    ]


def _named(flag: bool) -> str:
    return " and the flag" if flag else ""


def _letters(values: int, *, flag: bool) -> list[Any]:
    times = [(EVENT_TIME, value) for value in TIME.fold.values[:values]]
    return [*letters(times), *([watermark(True, USE_PROCESSING_TIME)] if flag else [])]


def _by_its_value(element: Any) -> Sequence[Any]:
    """The flag is an event time for the model and for the facts."""
    if isinstance(element, Signal) and element.identifier == USE_PROCESSING_TIME:
        return (watermark(PROCESSING_TIME, EVENT_TIME),)
    return (element,)


def _gate_case(channels: int, values: int, flag: bool, name: str) -> Case:
    return Case(
        name,
        [gate_component(GateSystem(_DECLARED, channels), _RULES, channels, _by_its_value)],
        None,
        _RULES,
        _letters(values, flag=flag),
        judged=Judged(status=True, closes=False),
        arriving=_by_its_value,
    )


def _operator(inputs: tuple[int, ...], values: int, name: str) -> Case:
    """Return a case of an operator. It sees the flag as wall-clock time, so only the model says what is right."""
    system = SubtaskSystem(operator_plan(_DECLARED.values(), inputs), "f")
    return Case(
        name,
        [subtask_component(system, _RULES, inputs, arriving=_by_its_value)],
        None,
        _RULES,
        _letters(values, flag=True),
        judged=Judged(time=False),
        arriving=_by_its_value,
    )


def _two_operators(subtasks: int, name: str) -> Case:
    plan = chain_plan(_DECLARED.values(), subtasks, 1)
    first = [
        subtask_component(SubtaskSystem(plan, "first", index), _RULES, (1,), arriving=_by_its_value)
        for index in range(subtasks)
    ]
    return Case(
        name,
        first,
        subtask_component(SubtaskSystem(plan, "second"), _RULES, (subtasks,), arriving=_by_its_value),
        _RULES,
        _letters(2, flag=True),
        judged=Judged(time=False, progress_of_others=False, repeats=False),
        arriving=_by_its_value,
    )
