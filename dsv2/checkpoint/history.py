"""The programs that wrote the values in the state of a job."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dsv2.checkpoint.program import ProgramDescription


def continued_programs(programs: Iterable[ProgramDescription], now: ProgramDescription) -> list[ProgramDescription]:
    """Return the programs of a job that has started from a savepoint, the last one last.

    Values that earlier programs wrote are still in the state, so the states as they declared them remain. All else is
    as in ``now``, because the start has carried it.

    Args:
        programs: The programs in the savepoint, oldest first.
        now: The program that has started.
    """
    kept: list[ProgramDescription] = []
    for program in programs:
        earlier = _with_states_of(program, now)
        if earlier != now and earlier not in kept:
            kept.append(earlier)
    return [*kept, now]


def _with_states_of(program: ProgramDescription, now: ProgramDescription) -> ProgramDescription:
    operators = {
        uid: replace(
            operator,
            states={name: program.states_of(uid).get(name, state) for name, state in operator.states.items()},
        )
        for uid, operator in now.operators.items()
    }
    return replace(now, operators=operators)
