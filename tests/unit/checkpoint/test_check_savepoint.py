"""Programs that a start from a savepoint accepts, and those that it refuses with a list of all differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from msgspec import structs

from dsv2 import ExecutionEnvironment
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.record import JobRecord
from dsv2.checkpoint.start import Action, Start, Stored, decide
from dsv2.errors import DroppedStateWarning, IncompatibleCheckpointError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.jobs.handle import RunOptions
from dsv2.runtime.serde.codec import FORMAT_VERSION
from dsv2.sinks import PrintSink
from dsv2.state import StateDeclaration, StateDeclarations


class Keep(OneInputStreamProcessFunction[Any, Any]):
    def __init__(self, *states: StateDeclaration) -> None:
        self.states = states
        self.seen = 0

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return self.states

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        self.seen += 1


TOTAL, LAST = StateDeclarations.value_state("total", int), StateDeclarations.value_state("last", str)


@dataclass(frozen=True)
class Program:
    """Words that are kept by two functions."""

    key: Callable[[str], object] = len
    states: tuple[StateDeclaration, ...] = (TOTAL,)
    parallelism: int = 1
    is_audited: bool = True

    def plan(self) -> Plan:
        env = ExecutionEnvironment.get_instance("local")
        words = env.from_collection(["a"]).with_uid("words")
        kept = words.key_by(self.key).process(Keep(*self.states)).with_uid("keep").with_parallelism(self.parallelism)
        if self.is_audited:
            kept.process(Keep()).with_uid("audit")
        kept.to_sink(PrintSink())
        return env.build_plan("job")


PROGRAM = Program()
DROPPING = RunOptions(allow_dropped_state=True)


def decided(now: Program, *before: Program, options: RunOptions = RunOptions(), **parts: Any) -> Start:  # noqa: B008
    programs = [describe(program.plan()) for program in before or (PROGRAM,)]
    record = JobRecord(job_id="job", batch_id=3, programs=programs, **parts)
    return decide(Stored(record, "/savepoint", is_savepoint=True), now.plan(), options, "new")


def carried(now: Program, *before: Program, **parts: Any) -> list[Difference]:
    start = decided(now, *before, **parts)
    start.check()
    start.warn_of_dropped("/savepoint")
    return [*start.changes, *start.dropped]


def refusal(now: Program, *before: Program, **parts: Any) -> list[str]:
    with pytest.raises(IncompatibleCheckpointError) as refused:
        carried(now, *before, **parts)
    return str(refused.value).splitlines()


def test_equal_program_has_no_differences() -> None:
    assert carried(PROGRAM) == []


def test_carried_differences_are_returned() -> None:
    assert [difference.subject for difference in carried(replace(PROGRAM, parallelism=3))] == ["keep", "audit"]


def test_refusal_lists_all_differences() -> None:
    head, *differences, advice = refusal(Program(key=str.upper, parallelism=3, is_audited=False))
    assert head == "This program cannot start from the savepoint /savepoint:"
    assert len(differences) == 3
    assert "'audit'" in differences[0]
    assert differences[0].endswith("A savepoint carries this change with allow_dropped_state=True.")
    assert differences[1].endswith("its parallelism was 1 and is now 3. A savepoint carries this change.")
    assert "operator 'keep' (defined at " in differences[2]
    assert "the key selector of input 0 has changed" in differences[2]
    assert differences[2].endswith("A savepoint does not carry this change.")
    assert advice == "Undo the changes that a savepoint does not carry."


def test_dropped_operator_needs_permission() -> None:
    now = replace(PROGRAM, is_audited=False)
    _, difference, advice = refusal(now)
    assert "operator 'audit' (defined at " in difference
    assert advice == "State would be dropped. To allow this, start with allow_dropped_state=True."
    with pytest.warns(DroppedStateWarning, match="operator 'audit'"):
        assert [difference.subject for difference in carried(now, options=DROPPING)] == ["audit"]


def test_dropped_state_needs_permission() -> None:
    now = replace(PROGRAM, states=(LAST,))
    _, difference, _ = refusal(now)
    assert f"operator 'keep' (defined at {__file__}:" in difference
    assert "the savepoint holds the state 'total', which the program no longer uses" in difference
    with pytest.warns(DroppedStateWarning, match="the state 'total'"):
        assert [difference.drops_state for difference in carried(now, options=DROPPING)] == [True]


def test_dropped_field_needs_permission() -> None:
    assert carried(PROGRAM, fields={"keep": ["seen"]}) == []
    _, difference, _ = refusal(PROGRAM, fields={"keep": ["seen", "count"]})
    assert "the savepoint holds the field 'count' of its function" in difference


def test_permission_to_drop_state_allows_nothing_else() -> None:
    _, _, difference, advice = refusal(Program(key=str.upper, is_audited=False), options=DROPPING)
    assert difference.endswith("A savepoint does not carry this change.")
    assert advice == "Undo the changes that a savepoint does not carry."


def test_checkpoint_of_another_state_format_is_refused() -> None:
    plan = PROGRAM.plan()
    record = JobRecord(
        job_id="job", batch_id=3, programs=[structs.replace(describe(plan), format_version=FORMAT_VERSION - 1)]
    )
    with pytest.raises(IncompatibleCheckpointError, match="take a savepoint with that version, and start from it"):
        decide(Stored(record, "/checkpoint"), plan, RunOptions(), "").check()
    start = decide(Stored(record, "/savepoint", is_savepoint=True), plan, RunOptions(), "")
    assert (start.action, [change.subject for change in start.changes]) == (Action.MIGRATE, ["format version"])
