"""Advice for attributes that contexts and collectors do not have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv2.errors import ContractError

_WATERMARKS = "ctx.non_partitioned_context.watermark_manager"
_NAMES_BY_ADVICE: Mapping[str, Sequence[str]] = {
    "output.collect(record)": ("append", "emit", "send", "write"),
    "output.collect(record), or ctx.output(tag, record) for a side output": ("collect",),
    "ctx.non_partitioned_context.apply_to_all_partitions(function)": ("apply_to_all_partitions",),
    "ctx.state_manager.current_key": ("current_key", "get_current_key"),
    "ctx.state_manager.get_state(declaration)": ("get_list_state", "get_map_state", "get_state", "get_value_state"),
    "ctx.processing_time_manager, or in event time the EventTimeManager of the function": (
        "register_event_time_timer",
        "register_processing_time_timer",
        "timer_service",
    ),
    f"{_WATERMARKS}.emit_watermark(watermark)": ("emit_watermark",),
    _WATERMARKS: ("watermark_manager",),
}
_INSTEAD = {name: advice for advice, names in _NAMES_BY_ADVICE.items() for name in names}


def as_misuse(error: AttributeError) -> Exception:
    """Return the ``ContractError`` for an attribute that a context or collector does not have, other errors as is.

    So an error policy for all errors does not skip every record.
    """
    if not type(error.obj).__module__.startswith("dsv2.runtime."):
        return error
    instead = _INSTEAD.get(error.name or "")
    advice = "" if instead is None else f". Write {instead}."
    misuse = ContractError(f"{error}{advice}").with_traceback(error.__traceback__)
    misuse.__cause__ = error
    return misuse
