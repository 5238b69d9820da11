"""Storage, comparisons and reports of the benchmark suite. Its short form runs the contestants themselves."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import nexmark, suite
from benchmarks.common.rows import Row, Rows
from benchmarks.common.standings import standings
from benchmarks.jobs.hot_topics import Tweets, rank_table, threshold
from benchmarks.peers import runner
from benchmarks.peers.environments import Unavailable
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.roster import DSV2, PLAIN, Contestant, Job, Target
from dsv2 import ExecutionEnvironment

TASK = Task(records=1000, batches=2, warm_up=1, keys=10, kind="dict", parallelism=2, mode="a b")
CONTESTANTS = (
    Contestant("plain loop", PLAIN, "plain"),
    Contestant("dsv2", DSV2, "on_dsv2", parallelism=2, near=0.1),
    Contestant("other", "other", "on_other"),
    Contestant("other, slower", "other", "on_other", most=((5, 100),)),
)
JOB = Job("job", "A job", CONTESTANTS, keys=(2, 7), targets=(Target("other", 1.5, 7),))


def row(contestant: str, seconds: float, keys: int = 7, records: int = 1000) -> Row:
    """A row of five batches."""
    return Row(contestant, keys, "tuple", 1000, records, [seconds] * 5, 3, 4, {"package": "1.0"})


def test_task_survives_the_command_line() -> None:
    assert Task.parse(TASK.arguments()) == TASK


def test_outcome_survives_its_file(tmp_path: Path) -> None:
    outcome = Outcome([0.5, 0.25], 3, 4, {"package": "1.0"})
    outcome.write(tmp_path / "outcome")
    assert Outcome.read(tmp_path / "outcome") == outcome


def test_batch_ends_with_its_last_subtask(tmp_path: Path) -> None:
    (tmp_path / "times").write_text("0 1.0\n0 1.5\n1 2.0\n1 3.0\n2 4.0\n2 3.5\n3 6.0\n3 6.5\n")
    notes = Notes(str(tmp_path))
    notes.add_totals(3, 10)
    notes.add_totals(4, 20)
    assert notes.outcome(TASK, {}) == Outcome([1.0, 2.5], 7, 30)


def test_measurements_are_replaced(tmp_path: Path) -> None:
    rows = Rows(tmp_path, "job")
    rows.put(row("dsv2", 1.0))
    rows.put(row("other", 1.0))
    rows.put(row("dsv2", 2.0))
    assert [(found.contestant, found.seconds[0]) for found in Rows(tmp_path, "job").all()] == [
        ("dsv2", 2),
        ("other", 1),
    ]


def test_measurements_of_another_machine_are_kept_apart(tmp_path: Path) -> None:
    for machine, seconds in (("slow", 4.0), ("fast", 1.0)):
        rows = Rows(tmp_path, "job", machine)
        assert rows.find("dsv2", 7, "tuple", 1000) is None
        rows.put(row("dsv2", seconds))
        rows.put(row("plain loop", 2 * seconds))
        assert [found.seconds[0] for found in rows.of_this_machine()] == [seconds, 2 * seconds]
    report = standings(JOB, Rows(tmp_path, "job", "fast").all(), "./run").tables
    assert [table.title for table in report[:2]] == [
        f"7 keys, records of kind tuple, batches of 1,000, {machine}" for machine in ("fast", "slow")
    ]
    ratio = report[0].header.index("of the plain loop")
    assert [line[ratio] for table in report[:2] for line in table.rows] == [1.0, 2.0] * 2


class Programs:
    """Replaces the contestants. Each gives one result with the sum 100, unless the test sets another outcome."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ran: list[str] = []
        self.outcomes: dict[str, Outcome] = {}
        self.unavailable: list[str] = []
        monkeypatch.setattr(suite, "run_apart", lambda environment, job, program, task, limit: self.run(program, task))
        monkeypatch.setattr(suite, "run_here", lambda job, program, task: Outcome([1.0], 1, 100))
        monkeypatch.setitem(JOBS, JOB.name, replace(JOB, keys=(7,)))
        suite._expected.cache_clear()

    def run(self, program: str, task: Task) -> Outcome:
        self.ran.append(program)
        if program in self.unavailable:
            raise Unavailable("no such package")
        return self.outcomes.get(program, Outcome([0.5] * task.batches, 1, 100))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    return Programs(monkeypatch)


def test_existing_measurements_are_kept_unless_asked(programs: Programs, tmp_path: Path) -> None:
    results = ["--results", str(tmp_path), "--rounds", "1"]
    suite.main(["job", *results, "--contestants", "plain"])
    assert programs.ran == ["plain"]
    suite.main(["job", *results])
    assert programs.ran == ["plain", "on_dsv2", "on_other", "on_other"]
    suite.main(["job", *results])
    assert len(programs.ran) == 4
    suite.main(["job", *results, "--contestants", "dsv2", "--again"])
    assert programs.ran[4:] == ["on_dsv2"]


def test_more_batches_are_measured_again(programs: Programs, tmp_path: Path) -> None:
    for batches in ("3", "5", "4"):
        suite.main(["job", "--results", str(tmp_path), "--contestants", "dsv2", "--rounds", "2", "--batches", batches])
    assert len(programs.ran) == 4


def test_ratios_are_those_of_the_rounds() -> None:
    slow_then_fast = replace(row("plain loop", 1.0), seconds=[2.0, 2.0, 1.0, 1.0, 4.0, 4.0], rounds=[2, 2, 2])
    ours = replace(row("dsv2", 1.0), seconds=[4.0, 4.0, 1.0, 1.0, 2.0, 2.0], rounds=[2, 2, 2])
    assert ours.ratios(slow_then_fast).seconds == (0.5, 1.0, 2.0)
    report = standings(JOB, [slow_then_fast, ours], "./run").markdown()
    assert "0.50 – 2.00" in report


def test_ratio_of_different_numbers_of_rounds_is_over_all() -> None:
    once = replace(row("plain loop", 1.0), seconds=[2.0, 2.0])
    ours = replace(row("dsv2", 1.0), seconds=[4.0, 1.0], rounds=[1, 1])
    assert ours.ratios(once).seconds == (0.8,)


def test_contestants_alternate_and_all_times_count(programs: Programs, tmp_path: Path) -> None:
    programs.outcomes = {"plain": Outcome([0.25] * 5, 1, 100)}
    programs.unavailable.append("on_other")
    arguments = ["job", "--results", str(tmp_path), "--rounds", "2", "--again"]
    suite.main(arguments)
    suite.main(arguments)
    once = ["plain", "on_dsv2", "on_other", "on_other", "plain", "on_dsv2"]
    assert programs.ran == once * 2
    times = {row.contestant: row.seconds for row in Rows(tmp_path, "job").all() if not row.missing}
    assert times == {"plain loop": [0.25] * 10, "dsv2": [0.5] * 10}


def test_failure_in_a_later_round_discards_the_times() -> None:
    rows = Rows(None, "job")
    outcomes = iter([row("dsv2", 1.0), replace(row("dsv2", 1.0), seconds=[], missing="not done")])
    rows.measure(3, [lambda: next(outcomes)])
    assert [(found.seconds, found.missing) for found in rows.all()] == [([], "not done")]


def test_wrong_results_do_not_count(programs: Programs, tmp_path: Path) -> None:
    programs.outcomes = {"on_dsv2": Outcome([0.1] * 5, 1, 91), "on_other": Outcome([0.1] * 5, 1, 99)}
    suite.main(["job", "--results", str(tmp_path)])
    missing = {found.contestant: found.missing for found in Rows(tmp_path, "job").all()}
    assert missing["dsv2"] == missing["plain loop"] == ""  # dsv2 may be off by a tenth
    assert missing["other"] == "wrong: 1 results with the sum 99, 1 with the sum 100 expected"
    programs.outcomes = {"on_dsv2": Outcome([0.1] * 5, 2, 100)}
    suite.main(["job", "--results", str(tmp_path), "--contestants", "dsv2", "--again"])
    known = Rows(tmp_path, "job").find("dsv2", 7, "tuple", 1_000_000)
    assert known is not None
    assert known.missing == "wrong: 2 results with the sum 100, 1 with the sum 100 expected"
    assert "wrong: 1 results" in (tmp_path / "job.md").read_text()


def test_unavailable_package_is_reported(programs: Programs, tmp_path: Path) -> None:
    programs.unavailable = ["on_other"]
    suite.main(["job", "--results", str(tmp_path)])
    assert "not available: no such package" in (tmp_path / "job.md").read_text()


def test_fastest_variant_counts() -> None:
    rows = [row("plain loop", 1.0), row("dsv2", 2.0), row("other", 4.0), row("other, slower", 1.0, records=100)]
    report = standings(JOB, rows, "./run bench suite job")
    (table, _) = report.tables
    paces = {cells[0]: (cells[1], cells[table.header.index("dsv2 / it")]) for cells in table.rows}
    assert paces == {"plain loop": (1000, 0.5), "dsv2": (500, 1), "other": (250, 2), "other, slower": (100, 5)}
    (verdict,) = report.verdicts
    assert (round(verdict.measured, 9), verdict.met) == (2, True)


def test_targets_apply_to_their_number_of_keys() -> None:
    assert not standings(JOB, [row("dsv2", 1.0, keys=2), row("other", 1.0, keys=2)], "").verdicts


def test_small_batches_are_for_many_keys() -> None:
    slower = CONTESTANTS[-1]
    assert [slower.records(1000, keys) for keys in (4, 5, 6)] == [1000, 100, 100]
    assert slower.records(10, 6) == 10


def test_failing_or_slow_program_is_ended_and_reported() -> None:
    class Shell:
        def exists(self) -> bool:
            return True

        def make(self) -> None:
            pass

        def command(self, job: str, program: str) -> list[str]:
            return ["sh", "-c", program]

        def variables(self) -> dict[str, str]:
            return {}

    with pytest.raises(runner.Failed, match=r"(?s)exit code 3:\nwhy"):
        runner.run_apart(Shell(), "job", "echo why; exit 3", TASK, 10)
    begin = time.monotonic()
    with pytest.raises(runner.Failed, match=r"not done after 0 s"):
        runner.run_apart(Shell(), "job", "sleep 60", TASK, 0.1)
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(("job", "kind"), [(job, kind) for job in JOBS.values() for kind in job.kinds])
def test_pipelines_match_the_plain_loop(job: Job, kind: str) -> None:
    task = Task(records=3000, batches=2, warm_up=1, keys=20, kind=kind)
    program = import_module(f"benchmarks.peers.{job.name}.on_dsv2")
    env = ExecutionEnvironment.get_instance(runtime="local")
    told: list[tuple[int, int]] = program.pipeline(env, task)
    env.execute(job.name)
    expected: Outcome = import_module(f"benchmarks.peers.{job.name}.plain").measure(task)
    assert (sum(number for number, _ in told), sum(total for _, total in told)) == (expected.results, expected.checksum)
    assert expected.checksum > expected.results > 0
    assert len(expected.seconds) == task.batches


@pytest.mark.parametrize("topics", [10, 1000, 50_000])
def test_topics_follow_zipfs_law(topics: int) -> None:
    table = rank_table(topics)
    first, second = table.count(1), table.count(2)
    assert first == pytest.approx(2 * second, rel=0.01)
    assert max(table) <= topics
    tweets = [Tweets(topics)(index) for index in range(10_000)]
    share = sum(tweet.topic == "topic-1" for tweet in tweets) / len(tweets)
    assert share == pytest.approx(first / len(table), rel=0.1)


def test_only_the_first_topic_is_hot() -> None:
    table = rank_table(1000)
    held = 5 * 60 * 1000
    assert table.count(2) / len(table) * held < threshold(Task(1_000_000)) < table.count(1) / len(table) * held


def test_queries_are_compared() -> None:
    def of(contestant: str, query: str, seconds: float, results: int = 7) -> Row:
        return Row(contestant, 0, query, 1_000_000, 1_000_000, [seconds], results, 3, date="today")

    made = nexmark.report(
        [
            of(nexmark.SPARK, "q1", 1.0),
            of(nexmark.FLINK_SQL, "q1", 0.5),
            of(nexmark.SPARK, "q2", 0.25),
            of(nexmark.FLINK_SQL, "q2", 2.0, results=8),
            of(nexmark.SPARK, "q18", 0.25),
            of(nexmark.DUCKDB, "q18", 1.0, results=8),
            replace(of(nexmark.LOCAL, "q18", 1.0), seconds=[], missing="not available"),
        ],
        "the command",
    )
    paces, different, missing = made.tables
    assert paces.rows == [
        ("q1", 1_000, "", "", 2_000, "", "", "", "", 0.5, "", "", ""),
        ("q2", 4_000, "", "", 500, "", "", "", "", 8.0, "", "", ""),
        ("q18", 4_000, "", "", "", "", 1_000, "", "", "", "", "", ""),
    ]
    assert different.rows == [("q2", "dsv2 on Spark: 7, 3; Flink SQL: 8, 3")]  # q18 emits updates
    assert missing.rows == [("q18", "dsv2, local", "not available")]
    assert [(round(verdict.measured, 9), verdict.met) for verdict in made.verdicts] == [(2.0, True), (0.5, False)]
