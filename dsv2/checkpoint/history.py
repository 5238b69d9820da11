"""The programs that wrote the values in the state of a job."""

from __future__ import annotations

from collections.abc import Iterable

from dsv2.checkpoint.description import Description


def continued_programs(programs: Iterable[Description], now: Description) -> list[Description]:
    """Return the programs of a job that has started from a savepoint, the last one last.

    Values that earlier programs wrote are still in the state, so the states as they declared them remain. All else is
    as in ``now``, because the start has carried it.

    Args:
        programs: The programs in the savepoint, oldest first.
        now: The program that has started.
    """
    earlier = [_with_states_of(program, now) for program in programs]
    kept: list[Description] = []
    for program in earlier:
        if program != now and program not in kept:
            kept.append(program)
    return [*kept, now]


def _with_states_of(program: Description, now: Description) -> Description:
    operators = {
        uid: {**operator, "states": operator["states"] | _states_of(program, uid, operator["states"])}
        for uid, operator in now["operators"].items()
    }
    return {**now, "operators": operators}


def _states_of(program: Description, uid: str, declared: Iterable[str]) -> dict[str, object]:
    states = program["operators"].get(uid, {}).get("states", {})
    return {name: states[name] for name in declared if name in states}
