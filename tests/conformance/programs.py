"""All programs."""

from __future__ import annotations

from tests.conformance import (
    programs_async,
    programs_by_clock,
    programs_columns,
    programs_differences,
    programs_ends,
    programs_errors,
    programs_event_time,
    programs_event_time_kinds,
    programs_formats,
    programs_functions,
    programs_joins,
    programs_keyed_columns,
    programs_lifecycle,
    programs_operators,
    programs_partitioning,
    programs_records,
    programs_resources,
    programs_scopes,
    programs_side_outputs,
    programs_sinks,
    programs_sources,
    programs_state,
    programs_triggers,
    programs_unblocking,
    programs_watermark_values,
    programs_watermarks,
    programs_windows,
)

__all__ = ("PROGRAMS", "WITH_KEYED_STATE")

PROGRAMS = (
    *programs_partitioning.PROGRAMS,
    *programs_functions.PROGRAMS,
    *programs_watermarks.PROGRAMS,
    *programs_watermark_values.PROGRAMS,
    *programs_event_time.PROGRAMS,
    *programs_event_time_kinds.PROGRAMS,
    *programs_lifecycle.PROGRAMS,
    *programs_records.PROGRAMS,
    *programs_resources.PROGRAMS,
    *programs_side_outputs.PROGRAMS,
    *programs_errors.PROGRAMS,
    *programs_columns.PROGRAMS,
    *programs_keyed_columns.PROGRAMS,
    *programs_sources.PROGRAMS,
    *programs_state.PROGRAMS,
    *programs_joins.PROGRAMS,
    *programs_by_clock.PROGRAMS,
    *programs_windows.PROGRAMS,
    *programs_triggers.PROGRAMS,
    *programs_differences.PROGRAMS,
    *programs_ends.PROGRAMS,
    *programs_operators.PROGRAMS,
    *programs_unblocking.PROGRAMS,
    *programs_scopes.PROGRAMS,
    *programs_sinks.PROGRAMS,
    *programs_formats.PROGRAMS,
    *programs_async.PROGRAMS,
)

# Programs with states, timers, windows and join buffers.
WITH_KEYED_STATE = (
    *programs_keyed_columns.PROGRAMS,
    *programs_state.PROGRAMS,
    *programs_errors.PROGRAMS,
    *programs_joins.PROGRAMS,
    *programs_by_clock.PROGRAMS,
    *programs_windows.PROGRAMS,
    *programs_triggers.PROGRAMS,
    *programs_operators.WITH_STATE,
    *programs_async.WITH_STATE,
    *programs_scopes.WITH_STATE,
)
