"""What to write instead of attributes that contexts and collectors do not have."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dsv2.errors import ContractError

__all__ = ("as_misuse",)

_COLLECT = "output.collect(record)"
_STATE = "ctx.state_manager.get_state(declaration)"
_TIMERS = "ctx.processing_time_manager, or in event time the EventTimeManager of the function"
_WATERMARKS = "ctx.non_partitioned_context.watermark_manager"
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "append": _COLLECT,
        "apply_to_all_partitions": "ctx.non_partitioned_context.apply_to_all_partitions(function)",
        "collect": f"{_COLLECT}, or ctx.output(tag, record) for a side output",
        "current_key": "ctx.state_manager.current_key",
        "emit": _COLLECT,
        "emit_watermark": f"{_WATERMARKS}.emit_watermark(watermark)",
        "get_current_key": "ctx.state_manager.current_key",
        "get_list_state": _STATE,
        "get_map_state": _STATE,
        "get_state": _STATE,
        "get_value_state": _STATE,
        "register_event_time_timer": _TIMERS,
        "register_processing_time_timer": _TIMERS,
        "send": _COLLECT,
        "timer_service": _TIMERS,
        "watermark_manager": _WATERMARKS,
        "write": _COLLECT,
    }
)


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
