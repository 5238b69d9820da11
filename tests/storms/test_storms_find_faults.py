"""Every storm detects faults: it reports lost, repeated and wrong records, and opaque errors. Without Spark."""

from __future__ import annotations

import json
import random
import subprocess
from argparse import Namespace
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsv2 import ExecutionEnvironment, FileSink, JobError
from dsv2.errors import CorruptDataError
from dsv2.local import LocalRuntime
from storms import blobs, changes, corruption, dags, kills, moves, poison, soak, upgrades
from storms.common import results
from storms.common.changes import CHANGES, Change
from storms.common.damage import DAMAGES, Target, drop_checksums, has_checksum, targets
from storms.common.outcome import Outcome, classify
from storms.common.outputs import differences
from storms.common.phases import BATCH_PHASES
from storms.common.processes import JobProcess
from storms.common.results import Results
from storms.common.text import last_error, one_line
from storms.common.upgrade_phases import PHASES, Scene, attempt, phase_reached
from storms.jobs import changing, endless, poisons, splits_counted, upgraded
from tests.property.runs import outcomes_of
from tests.storms import toy

PLAN = [
    ("driver", "record written"),
    ("driver", "state"),
    ("worker", "gate"),
    ("driver", "offsets"),
    ("driver", "sink done"),
]
OPTIONS = Namespace(kills=3, others=1, seed=1, graphs=4, runtime="spark", processes=1)


def life_of_toy(folder: Path, sink: str) -> kills.Life:
    """The life of a job that takes a step only when the storm has looked at the files of the step before."""
    wait_until, finish = JobProcess.wait_until, JobProcess.finish

    def look_until(process: JobProcess, happened: Callable[[], bool]) -> None:
        wait_until(process, lambda: happened() or toy.look(process.folder))

    def let_go(process: JobProcess) -> None:
        toy.let_go(process.folder)
        finish(process)

    job = kills.Job("toy", toy.__name__, (sink,), launcher=toy.__name__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JobProcess, "wait_until", look_until)
        patch.setattr(JobProcess, "finish", let_go)
        return kills.live(job, f"toy {sink}", folder, PLAN, kills.prepared(job))


def test_kills_of_an_exactly_once_job_have_no_effect(tmp_path: Path) -> None:
    life = life_of_toy(tmp_path, "exactly-once")
    assert life.output == kills.EQUAL
    # The driver itself passes the gate, which is no worker.
    assert [phase for victim, phase in life.kills if victim == "driver"][1:] == ["state", "offsets", "sink done"]


def test_kills_with_a_careless_sink_are_reported(tmp_path: Path) -> None:
    life = life_of_toy(tmp_path, "careless")
    assert life.output.startswith("out: 0 missing and ")
    verdict = kills.describe([life], OPTIONS).verdicts[-1]
    assert (verdict.claim, verdict.measured, verdict.met) == ("lives with a different output", 1, False)


def test_job_that_cannot_start_is_reported(tmp_path: Path) -> None:
    job = kills.Job("toy", toy.__name__, (), launcher=toy.__name__)
    assert kills.live(job, "toy", tmp_path, PLAN, kills.prepared(job)).output.startswith("failed: ")


def test_every_phase_is_drawn() -> None:
    options = Namespace(kills=200, others=50, per_life=10)
    phases = kills.wanted_phases(Results(None, "kills", kills.Life))
    plan = kills.draw(random.Random(1), phases, options)
    assert plan[0] == ("driver", "checkpoint folder made")
    assert {phase for victim, phase in plan if victim == "driver"} == {*BATCH_PHASES, "checkpoint folder made"}
    assert Counter(victim == "driver" for victim, _ in plan) == {True: 8, False: 2}


# --- Upgrades ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "output"), [("none", "equal"), ("lost", "files: 1 missing and 0 extra of 36")])
def test_lost_records_of_an_upgraded_job_are_reported(fault: str, output: str, tmp_path: Path) -> None:
    outputs = upgraded.Outputs(tmp_path, "toy", 3, None)
    life = upgrades.Upgrades("toy", tmp_path, outputs, ["-m", "tests.storms.toy_upgraded", fault])
    lived = life.live([("create", "tables begun")], None)
    assert (lived.output, lived.kills) == (output, [["create", "tables begun"]])
    report = upgrades.describe([lived], Namespace(kills=1, seed=1))
    assert [verdict.met for verdict in report.verdicts] == [True, fault == "none"]


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("exit('JobError: this driver has lost its lease')", "fenced"),
        ("pass", "ended with exit code 0: "),
        ("raise ValueError('disk full')", "ended with exit code 1: ValueError: disk full"),
    ],
)
def test_late_driver_must_be_fenced_off(program: str, outcome: str, tmp_path: Path) -> None:
    with JobProcess(tmp_path, ["-c", program]) as process:
        process.start()
        assert upgrades.outcome_of_late(upgrades.LATE[0], process) == outcome
    life = upgrades.Life("one", upgrades.EQUAL, late=[[upgrades.LATE[0], outcome]])
    assert upgrades.is_sound(life) == (outcome == "fenced")


def test_phase_of_an_upgrade_is_the_last_one_that_its_files_show(tmp_path: Path) -> None:
    generation = tmp_path / "checkpoint/generations/1"

    def reached(scene: Scene) -> str | None:
        phase = phase_reached(PHASES["migrate"], scene)
        return None if phase is None else phase.name

    def made(*names: str) -> str | None:
        for name in names:
            (generation / name).parent.mkdir(parents=True, exist_ok=True)
            (generation / name).write_text('{"batch_id": 6}')
        return reached(scene)

    scene = Scene(tmp_path, generation, tmp_path / "checkpoint", newest=4)
    (tmp_path / "checkpoint/offsets").mkdir(parents=True)
    (tmp_path / "checkpoint/offsets/4").touch()
    (tmp_path / "checkpoint/commits").mkdir()
    assert reached(scene) is None
    assert made("savepoint/state/0/_SUCCESS") == "a table written"
    assert made("savepoint/savepoint.json", "dsv2/job/0.json", "offsets/0") == "offsets"
    (tmp_path / "counted/_dsv2/data/7-1-run-1").mkdir(parents=True)
    assert reached(scene) == "files begun"
    assert reached(replace(scene, discarded=attempt(generation))) is None
    assert made("commits/0") == "committed"
    (tmp_path / "checkpoint/offsets/4").unlink()
    assert reached(scene) == "cleanup begun"


def test_every_phase_of_upgrades_is_drawn() -> None:
    plan = upgrades.draw(Counter(), 100, servers=True)
    assert {*plan} == {(kind, phase.name) for kind in upgrades.KINDS for phase in upgrades.phases_of(kind)}
    assert ("restore", "Kafka written") not in upgrades.draw(Counter(), 100, servers=False)


def test_lost_records_of_a_moved_job_are_reported() -> None:
    lives = [moves.Life("one", moves.EQUAL, [["spark", "offsets"]]), moves.Life("two", "files: 1 missing", [])]
    assert [verdict.met for verdict in moves.describe(lives, Namespace(kills=1, seed=1)).verdicts] == [True, False]


def test_every_phase_of_moves_is_drawn() -> None:
    every = moves.phases()
    assert {*moves.draw(random.Random(1), Counter(every[1:]), 1, servers=True)} == {every[0]}
    assert {runtime for runtime, _ in every} == {"local", "spark"}


# --- Outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "difference", "outcome"),
    [
        (None, "", Outcome.RIGHT),
        (None, "one missing", Outcome.WRONG),
        ("offsets/4 is damaged", "", Outcome.NAMED),
        ("State of it, subtask 1", "", Outcome.NAMED),
        ("State is damaged", "", Outcome.OPAQUE),
    ],
)
def test_outcomes(error: str | None, difference: str, outcome: Outcome) -> None:
    assert classify(error, difference, [["offsets/4"], ["State of", "subtask"]]) is outcome


def test_differences_are_counted_by_sink() -> None:
    wanted = {"a": Counter([(1,), (2,)]), "b": Counter([(3,)])}
    assert differences(wanted, wanted) == ""
    found = {"a": Counter([(1,), (1,)]), "b": Counter([(3,)])}
    assert differences(wanted, found) == "a: 1 missing and 1 extra of 2"
    assert differences(wanted, {"a": wanted["a"]}) == "b: 1 missing and 0 extra of 1"


def test_last_error_of_a_log_excludes_its_traceback() -> None:
    log = "WARN x\nTraceback (most recent call last):\n  File a\n    b\nerrors.Bad: one\n  - two\n"
    assert last_error(log) == "errors.Bad: one\n  - two"
    assert one_line("a |\n b") == "a \\| b"


# --- Corruption -------------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for number in range(9, 12):
        for place in (f"offsets/{number}", f"state/0/0/{number}.delta", f"state/0/1/{number}.delta"):
            file = tmp_path / place
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"number {number}" * (2 if "/1/" in place else 1))
            file.with_name(f".{file.name}.crc").write_text(f"sum {number}")
    (tmp_path / "metadata").write_text("{}")
    (tmp_path / "dsv2").mkdir()
    (tmp_path / "dsv2/job").mkdir()
    (tmp_path / "dsv2/job/3.json").write_text("{}")
    return tmp_path


def test_one_file_of_every_kind_is_a_target(checkpoint: Path) -> None:
    assert [*targets(checkpoint)] == [
        Target("dsv2/job/N.json, newest", "dsv2/job/3.json"),
        Target("metadata, newest", "metadata"),
        Target("offsets/N, newest", "offsets/11", "offsets/10"),
        Target("offsets/N, before", "offsets/10", "offsets/9"),
        Target("state/N/N/N.delta, newest", "state/0/1/11.delta", "state/0/1/10.delta"),
    ]


def test_every_damage_is_applied(checkpoint: Path) -> None:
    target = Target("offsets/N, newest", "offsets/11", "offsets/10")
    file = checkpoint / target.file
    whole, seen = file.read_bytes(), {}
    for name, damage in DAMAGES.items():
        assert damage(checkpoint, target)
        seen[name] = file.read_bytes() if file.exists() else None
        file.write_bytes(whole)
    assert seen == {
        "emptied": b"",
        "truncated": b"numb",
        "byte changed": b"numbur 11",
        "deleted": None,
        "older": b"number 10",
    }
    assert not DAMAGES["older"](checkpoint, replace(target, older=None))


def test_checksums_are_kept_or_dropped(checkpoint: Path) -> None:
    target = Target("offsets/N, newest", "offsets/11", "offsets/10")
    assert has_checksum(checkpoint, target)
    DAMAGES["older"](checkpoint, target)
    assert (checkpoint / "offsets/.11.crc").read_text() == "sum 10"
    drop_checksums(checkpoint)
    assert not has_checksum(checkpoint, target)


def test_bad_cells_are_reported() -> None:
    cells = [
        corruption.Cell(outcome.value, "blob", "offsets/N, newest", "emptied", False, outcome.value)
        for outcome in Outcome
    ]
    assert corruption.describe(cells, 1).verdicts[0].measured == 3


class Ended:
    """The handle of a job."""

    def __init__(self, ends: bool = True, error: Exception | None = None) -> None:
        self._ends, self._error = ends, error

    def await_termination(self, timeout: timedelta) -> bool:
        if self._error is not None:
            raise self._error
        return self._ends

    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (Ended(), "wrong"),  # there is no output
        (Ended(ends=False), "hangs"),
        (Ended(error=CorruptDataError("offsets/11 is damaged")), "refused"),
        (Ended(error=JobError("Something is damaged")), "opaque"),
        (Ended(error=ValueError("offsets/11")), "refused"),
    ],
)
def test_restart_is_classified(job: Ended, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splits_counted, "start", lambda *_: job)
    spark: Any = None
    found, _ = corruption.restart(spark, tmp_path, "blob", Target("offsets/N, newest", "offsets/11"))
    assert found.value == outcome


# --- Changed restarts -------------------------------------------------------------------------------------------------


def test_every_change_applies_to_the_program_text(tmp_path: Path) -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES) >= 40
    folder = Path(changing.__file__).parent
    for change in CHANGES:
        for name, edits in (("program.py", change.edits), ("helper.py", change.helper)):
            file = tmp_path / name
            file.write_text((folder / name).read_text())
            changes.edit(file, edits)
            compile(file.read_text(), name, "exec")


def restarted(base: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> changes.Cell:
    """The outcome of a program without a job."""
    (base / "changing").mkdir(parents=True)
    (base / "changing/program.py").write_text("")
    (base / "changing/helper.py").write_text("")
    monkeypatch.setattr(changes, "process_of", lambda folder, checkpoint: JobProcess(folder, ["-c", program]))
    (base / "log").touch()
    change = Change("any", (Outcome.RIGHT,), names=["'counts'"])
    return changes.restart(base, base.with_name("cell"), change, {"counts": Counter([("counts", "a", 1)])})


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("pass", "wrong"),
        ("print('WARNING: state \\'counts\\' was not asked for')", "warned"),
        ("from dsv2.errors import *; raise IncompatibleCheckpointError('operator \\'counts\\' is gone')", "refused"),
        ("from dsv2.errors import *; raise IncompatibleCheckpointError('it is gone')", "opaque"),
        ("raise ValueError('operator \\'counts\\'')", "opaque"),
    ],
)
def test_changed_restart_is_classified(
    program: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert restarted(tmp_path / "base", program, monkeypatch).outcome == outcome


def test_unexpected_outcome_is_reported() -> None:
    key_selector = next(change for change in CHANGES if change.name == "key selector")
    for outcome, bad in ((Outcome.NAMED, 0), (Outcome.WRONG, 1), (Outcome.OPAQUE, 1), (Outcome.HANGS, 1)):
        cell = changes.Cell(key_selector.name, outcome.value)
        assert changes.describe({cell.name: cell}, 1).verdicts[0].measured == bad


# --- Poison -----------------------------------------------------------------------------------------------------------


def run_locally(case: poisons.Poison, tmp_path: Path) -> poison.Cell:
    spark: Any = None
    return poison.run_poison(case, "local", spark, tmp_path)


def test_lost_records_are_wrong(tmp_path: Path) -> None:
    case = poisons.Poison("lost", (Outcome.RIGHT,), poisons.through(poisons.Fixed, wanted=[*poisons.items(), "lost"]))
    cell = run_locally(case, tmp_path)
    assert (cell.outcome, cell.detail, cell.is_sound) == ("wrong", "1 missing and 0 extra of 21", False)
    assert poison.describe([cell], 1).verdicts[0].measured == 1


def test_error_must_have_the_required_words(tmp_path: Path) -> None:
    refused = (Outcome.NAMED,)
    named = poisons.Poison("raises", refused, poisons.through(poisons.Raise), ("process_record", "number=13"))
    assert run_locally(named, tmp_path).is_sound
    assert run_locally(replace(named, names=("another word",)), tmp_path).outcome == "opaque"


# --- Random DAGs ------------------------------------------------------------------------------------------------------


def test_lost_record_of_a_graph_is_reported() -> None:
    cases = [case for case in dags.cases(30, 1) if case.one_order]
    graphs = [case.graph for case in cases]
    with outcomes_of(graphs, LocalRuntime()) as local, outcomes_of(graphs, LocalRuntime(batches=(2,))) as other:
        assert [*dags.found_wrong(cases, other, local)] == []
        held = next(items for outcome in other for items in outcome.results.values() if items)
        held.pop()
        assert len([*dags.found_wrong(cases, other, local)]) == 1


def test_different_order_of_a_graph_is_reported() -> None:
    cases = [case for case in dags.cases(30, 1) if case.one_order]
    with outcomes_of([case.graph for case in cases], LocalRuntime()) as local:
        others = [local[1], local[0], *local[2:]]
        swapped = [replace(case, graph=other.graph) for case, other in zip(cases, others, strict=True)]
        found = [what for _, what in dags.found_wrong(swapped, others, local)]
    assert found == ["records or their order differ from the local run"] * 2


def test_bad_graphs_are_reported() -> None:
    chunk = dags.Chunk("one", 4, 1, [["BATCH", "graph", "lost"]])
    assert [verdict.met for verdict in dags.describe([chunk], OPTIONS).verdicts] == [True, False]


# --- Soak -------------------------------------------------------------------------------------------------------------


def test_growth_is_reported() -> None:
    flat = soak.Sample("0", 1, 1, 100, 100, 100, 100, 100, 100, 100, 100)
    samples = [replace(flat, name=str(second), workers_mb=100.0 + second) for second in range(40)]
    report = soak.describe(samples, "", 1)
    assert [verdict.claim for verdict in report.verdicts if not verdict.met] == ["growth of workers mb"]
    delayed = [replace(flat, name=str(second), delay_ms=1.0 + second) for second in range(40)]
    report = soak.describe(delayed, "", 1, "local")
    assert [verdict.claim for verdict in report.verdicts if not verdict.met] == ["growth of delay ms"]


def test_lost_or_repeated_numbers_are_reported(tmp_path: Path) -> None:
    def batch(number: int, numbers: list[int]) -> None:
        folder = tmp_path / "counted"
        folder.mkdir(exist_ok=True)
        nth = [one // endless.KEYS + 1 for one in numbers]
        pq.write_table(pa.table({"number": numbers, "nth": nth}), folder / f"{number:010}-part.parquet")

    batch(0, [0, 1, 2])
    batch(1, [3, 4])
    batch(2, [4, 9])  # not committed
    assert endless.difference(tmp_path, committed=2) == ""
    batch(3, [4])
    assert endless.difference(tmp_path, committed=4) == "3 missing and 3 extra of 8"


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([(0, 1), (1, 1), (2, 1)], ""),
        ([(0, 1), (2, 1)], "1 wrong values of 2 records"),
        ([(0, 1), (1, 1), (1, 1)], "1 wrong values of 3 records"),
        ([(0, 1), (1, 2)], "1 wrong values of 2 records"),
    ],
)
def test_wrong_published_numbers_are_reported(records: list[tuple[int, int]], found: str, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    counted = env.from_collection([endless.Counted(*record) for record in records])
    counted.to_sink(FileSink(tmp_path / "counted", schema=endless.Counted))
    env.execute("counted")
    assert endless.difference_of_published(tmp_path) == found


# --- Results ----------------------------------------------------------------------------------------------------------


def test_results_are_kept_one_by_one(tmp_path: Path) -> None:
    first = changes.Cell("first", "right")
    Results(tmp_path, "changes", changes.Cell).add(first)
    again = Results(tmp_path, "changes", changes.Cell)
    assert "first" in again
    again.add(replace(first, outcome="wrong"))
    again.add(changes.Cell("second", "right"))
    assert [cell.outcome for cell in Results(tmp_path, "changes", changes.Cell)] == ["wrong", "right"]
    assert [*Results(tmp_path, "changes", changes.Cell, again=True)] == []


def test_results_of_other_code_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Results(tmp_path, "changes", changes.Cell).add(changes.Cell("first", "right"))
    monkeypatch.setattr(results, "code_digest", lambda: "of other code")
    assert [*Results(tmp_path, "changes", changes.Cell)] == []


def test_decoder_that_runs_code_crashes_or_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    sound: dict[str, Any] = {
        "outcomes": {"decoded": 1, "refused": 2},
        "events": [],
        "fired": [],
        "megabytes": 100,
        "slowest_seconds": 0.1,
    }
    for changed, said in (
        ({}, []),
        ({"outcomes": {"ValueError: x": 3}}, ["ValueError: x (3 times)"]),
        ({"events": ["os.system"]}, ["events: os.system"]),
        ({"fired": ["__init__", "__init__"]}, ["fired: __init__"]),
        ({"megabytes": 5000}, ["5000 MB of memory"]),
        ({"slowest_seconds": 60.0}, ["60.0 s for one blob"]),
    ):
        run = CompletedProcess([], 0, json.dumps(sound | changed), "")
        monkeypatch.setattr(subprocess, "run", lambda *_, run=run, **__: run)
        assert blobs.run_chunk("chunk", 1, 3).bad == said
    crash = CompletedProcess([], -11, "", "Fatal Python error: Segmentation fault")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: crash)
    assert blobs.run_chunk("chunk", 1, 3).bad == ["the process ended with -11: Fatal Python error: Segmentation fault"]
