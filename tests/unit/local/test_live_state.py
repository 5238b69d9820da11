"""The state of running local jobs, read by the client over HTTP."""

from __future__ import annotations

import enum
import json
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import pytest

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, NonKeyedPartitionStream
from dsv2.arrow import ArrowContext, ArrowProcessFunction
from dsv2.client import JobClient, connect
from dsv2.errors import ConfigurationError, JobError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.listener import JobListener
from dsv2.jobs.live_state import StateQuery
from dsv2.jobs.progress import JobProgress
from dsv2.local import LocalRuntime
from dsv2.local.page_log import PageReader
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import CollectionSource
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl
from dsv2.testing import ManualClock
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import server_of
from tests.dashboard_client import TOKEN, ask
from tests.durations import LONG
from tests.spans import Spans

pytestmark = pytest.mark.filterwarnings("ignore::dsv2.errors.DroppedStateWarning")

SETTINGS = Dashboard(0, token=TOKEN)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Place(NamedTuple):
    shop: str
    shelf: int


@dataclass(frozen=True)
class Item:
    name: str
    color: Color


class Order(NamedTuple):
    key: Any
    amount: int | None


class Total(NamedTuple):
    number: int
    amounts: list[int]
    price: Decimal
    at: datetime | None


TOTAL = StateDeclarations.value_state("total", Total)
AMOUNTS = StateDeclarations.list_state("amounts", int)
COUNTS = StateDeclarations.map_state("counts", str, int)
ANY = StateDeclarations.value_state("any", int | str)
LIVES = StateDeclarations.value_state("lives/long", int, ttl=StateTtl(timedelta(days=1)))
NEVER = StateDeclarations.value_state("never", str)
SHARED = StateDeclarations.list_state_builder("shared", int).redistribute_by("split").build()
TIME = datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC)


class Keeping(OneInputStreamProcessFunction[Order, Any]):
    """Keeps orders in states of all kinds. An order without an amount removes its key."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [TOTAL, AMOUNTS, COUNTS, ANY, LIVES, NEVER]

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        total, amounts, counts, other, lives, _ = map(ctx.state_manager.get_state, self.uses_states())
        if record.amount is None:
            for state in (total, amounts, counts, other, lives):
                state.clear()
        else:
            before = total.value() or Total(0, [], Decimal(0), None)
            price = Decimal(record.amount) / 8
            total.update(Total(before.number + 1, [*before.amounts, record.amount], before.price + price, TIME))
            amounts.add(record.amount)
            counts.put(str(record.amount), record.amount)
            other.update(record.amount)
            lives.update(record.amount)
        output.collect(record.key)


class Waiting(ForeachBatchSink[Any]):
    """Lets a test wait until a number of records have arrived, so that their micro-batch is committed."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()
        super().__init__(self._add)

    def _add(self, records: list[Any], batch_id: int) -> None:
        with self._changed:
            self.count += len(records)
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, LONG)


class Jobs(JobListener):
    """Jobs on one dashboard, which end with the test.

    Attributes:
        progress: Set when the last one has completed a micro-batch.
    """

    def __init__(self, folder: Path, stack: ExitStack, processes: int) -> None:
        self.progress = threading.Event()
        self._folder = folder
        self._stack = stack

        self._options = {"checks": False, "processes": processes}

    def start(
        self,
        orders: list[Any],
        function: OneInputStreamProcessFunction[Any, Any] | ArrowProcessFunction[Any, Any] | None = None,
        *,
        name: str = "orders",
        checkpoint: str | None = "checkpoint",
        parallelism: int = 2,
        awaited: int | None = None,
        records_per_batch: int | None = None,
        **options: Any,
    ) -> JobHandle:
        runtime = LocalRuntime(clock=ManualClock(), **{**self._options, **options})
        env = ExecutionEnvironment.get_instance(runtime)
        env.set_parallelism(parallelism)
        self.progress.clear()
        env.add_job_listener(self)
        sink = Waiting()
        kept = orders_in(env, orders, "", records_per_batch).key_by(key_of).process(function or Keeping())
        kept.with_uid("kept").to_sink(sink).with_uid("out").with_parallelism(1)
        place = None if checkpoint is None else self._folder / checkpoint
        job = env.execute_async(name, checkpoint_location=place, dashboard=SETTINGS, allow_dropped_state=True)
        self._stack.callback(job.stop)
        self._stack.callback(lambda: GATE.opened.set())
        sink.wait_for(len(orders) if awaited is None else awaited)
        return job

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.progress.set()

    @property
    def url(self) -> str:
        return server_of(SETTINGS)[0].url

    def client(self, job: str | None = None) -> JobClient:
        return connect(self.url, job=job)


@pytest.fixture
def jobs(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Jobs]:
    with ExitStack() as stack:
        stack.callback(lambda: server_of(SETTINGS)[0].close())
        yield Jobs(tmp_path, stack, processes=getattr(request, "param", 1))


with_workers = pytest.mark.parametrize("jobs", [1, 2], indirect=True, ids=["one process", "two processes"])


def orders_in(
    env: ExecutionEnvironment, orders: list[Any], kind: str, records_per_batch: int | None = None
) -> NonKeyedPartitionStream[Any]:
    """A stream of orders that does not end."""
    source = CollectionSource(orders, records_per_batch=records_per_batch)
    silent = env.from_source(Spans({"a": 0}, bounded=False)).with_uid(f"silent {kind}").with_parallelism(1)
    given = env.from_source(source).with_uid(f"in {kind}").with_parallelism(1)
    return given.union(silent.map(itself).with_uid(f"none {kind}").with_parallelism(1))


def itself(item: Any) -> Any:
    return item


def key_of(order: Order) -> Any:
    return order.key


def orders_of(*keys: Any) -> list[Order]:
    return [Order(key, number) for number, key in enumerate(keys)]


KEYS: dict[str, tuple[Any, Any, Any]] = {
    "texts": ("a/b?c=%2F&d", "ü/☃ \"'", ""),
    "numbers": (-5, 0, 2**62),
    "large numbers": (2**70, -(2**70), 1),
    "floats": (-1.5, 0.0, 1e300),
    "bools": (True, False, True),
    "bytes": (b"\x00\xff/", b"", b"a"),
    "tuples": (("a/b", -1), ("", 0), ("ü", 2)),
    "tuples with None": (("a", None), ("b", 1), ("c", None)),
    "nested tuples": ((("a", (1, 2)), b"x"), (("", (0, 0)), b""), (("b", (1, 2)), b"x")),
    "named tuples": (Place("a/b", -1), Place("", 0), Place("b", 1)),
    "dataclasses": (Item("a", Color.RED), Item("a", Color.BLUE), Item("", Color.RED)),
    "enumerations": (Color.RED, Color.BLUE, Color.RED),
    "dates": (date(2026, 1, 2), date(1, 1, 1), date(9999, 12, 31)),
    "times": (TIME, TIME + timedelta(microseconds=1), TIME - timedelta(days=1)),
    "durations": (timedelta(microseconds=-1), timedelta(0), timedelta(days=1)),
    "decimals": (Decimal("1.50"), Decimal(-2), Decimal(0)),
    "identifiers": (UUID(int=1), UUID(int=2), UUID(int=1 << 127)),
}


def test_keys_of_all_kinds_are_found(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, clock=ManualClock()))
    env.set_parallelism(2)
    sinks = {kind: Waiting() for kind in KEYS}
    for kind, keys in KEYS.items():
        kept = orders_in(env, orders_of(*keys), kind).key_by(key_of).process(Keeping()).with_uid(kind)
        kept.to_sink(sinks[kind]).with_uid(f"out {kind}").with_parallelism(1)
    job = env.execute_async("keys", checkpoint_location=tmp_path, dashboard=SETTINGS)
    try:
        for sink in sinks.values():
            sink.wait_for(3)
        client = connect(server_of(SETTINGS)[0].url)
        for kind, keys in KEYS.items():
            state = client.state(kind, AMOUNTS)
            expected: dict[Any, list[int]] = {}
            for number, key in enumerate(keys):
                expected.setdefault(key, []).append(number)
            assert {key: state.get(key) for key in keys} == expected, kind
            typed = state.with_key_type(type(keys[0]))
            if kind not in ("large numbers", "tuples", "nested tuples", "tuples with None"):
                assert dict(typed.items()) == expected, kind
    finally:
        job.stop()
        server_of(SETTINGS)[0].close()


@with_workers
def test_states_of_all_kinds(jobs: Jobs) -> None:
    jobs.start([Order("a", 3), Order("b", 1), Order("a", 2**62), Order("b", None)])
    client = jobs.client()
    assert client.state("kept", TOTAL).get("a") == Total(2, [3, 2**62], Decimal(3 + 2**62) / 8, TIME)
    assert client.state("kept", AMOUNTS).get("a") == [3, 2**62]
    assert client.state("kept", COUNTS).get("a") == {"3": 3, str(2**62): 2**62}
    assert client.state("kept", ANY).get("a") == 2**62
    assert client.state("kept", LIVES).get("a") == 2**62
    untyped: Any = client.state("kept", "total").get("a")
    assert (untyped["amounts"], untyped["at"]) == ([3, 2**62], TIME)
    for state in (TOTAL, AMOUNTS, COUNTS, ANY, LIVES):
        assert client.state("kept", state).get("b") is None, "the key was deleted"
        assert client.state("kept", state).get("c") is None
        assert client.state("kept", state).table().num_rows == 1
    never = client.state("kept", NEVER)
    assert (never.get("a"), never.items(), never.table().column_names) == (None, [], ["subtask", "key", "value"])


@with_workers
def test_columns_are_those_of_a_savepoint(jobs: Jobs, tmp_path: Path) -> None:
    job = jobs.start(orders_of(*"abcdefgh"))
    client = jobs.client()
    savepoint = Savepoint.open(job.savepoint(tmp_path / "savepoint"))
    for state in (TOTAL, AMOUNTS, COUNTS, ANY):
        expected = savepoint.state("kept", state.name).to_arrow()
        found = client.state("kept", state).table()
        assert found.schema.equals(expected.schema)
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, expected.to_pylist()))


def test_ranges_and_limits(jobs: Jobs) -> None:
    jobs.start(orders_of(*range(-50, 50)))
    state = jobs.client().state("kept", ANY).with_key_type(int)
    assert sorted(state.items(start=-3, stop=2)) == [(-3, 47), (-2, 48), (-1, 49), (0, 50), (1, 51)]
    assert len(state.items(start=45)) == 5
    assert len(state.items(stop=-45)) == 5
    first = state.table(limit=7)
    assert (first.num_rows, first.schema.metadata[b"more"]) == (7, b"true")
    assert state.table(limit=100).schema.metadata[b"more"] == b"false"


@pytest.mark.parametrize("restarts", [False, True])
def test_reads_see_the_last_committed_micro_batch(jobs: Jobs, restarts: bool) -> None:
    orders = [*orders_of(*range(40)), Order(-1, 7)]
    jobs.start(orders, Blocking(), records_per_batch=40, checks=restarts, awaited=0)
    assert GATE.entered.wait(LONG)
    state = jobs.client().state("kept", ANY)
    assert (len(state.items()), state.get(-1), state.get(39)) == (40, None, 39)
    GATE.opened.set()


class BlockingInWorker(Keeping):
    """Waits in a worker process, after it has changed the state of a negative key."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)
        if record.key < 0:
            Path(self.folder, "entered").open("wb").close()  # a named pipe: waits for its reader
            Path(self.folder, "opened").open("rb").close()


@pytest.mark.parametrize("jobs", [3], indirect=True)
@pytest.mark.parametrize("restarts", [False, True])
def test_reads_see_a_micro_batch_that_all_workers_have_committed(jobs: Jobs, tmp_path: Path, restarts: bool) -> None:
    for name in ("entered", "opened"):
        os.mkfifo(tmp_path / name)
    orders = [*orders_of(*range(40)), *orders_of(*range(40)), Order(-1, 7), *orders_of(*range(40))]
    function = BlockingInWorker(str(tmp_path))
    jobs.start(orders, function, records_per_batch=40, checks=restarts, awaited=40, parallelism=6)
    (tmp_path / "entered").open("rb").close()  # the other two workers complete the third micro-batch meanwhile
    try:
        state = jobs.client().state("kept", AMOUNTS)
        assert dict(state.items()) == {key: [key, key] for key in range(40)}
        assert (state.get(-1), state.get(39), state.get(5)) == (None, [39, 39], [5, 5])
        jobs.progress.clear()
    finally:
        (tmp_path / "opened").open("wb").close()
    assert jobs.progress.wait(LONG)
    assert state.get(-1) == [7]


class Gate:
    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()


GATE = Gate()


class Blocking(Keeping):
    """Waits after it has changed the state of a negative key."""

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        super().process_record(record, output, ctx)
        if record.key < 0:
            GATE.entered.set()
            GATE.opened.wait(LONG)


@pytest.fixture(autouse=True)
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(__import__("sys").modules[__name__], "GATE", Gate())
    yield
    GATE.opened.set()


def test_one_key_costs_one_page(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs.start(orders_of(*range(3000)), parallelism=1)
    state = jobs.client().state("kept", ANY)
    assert state.get(1) == 1
    read: list[int] = []
    get = PageReader.get

    def noted(self: PageReader, number: int) -> bytes | None:
        read.append(number)
        return get(self, number)

    monkeypatch.setattr(PageReader, "get", noted)
    assert state.get(2999) == 2999
    assert len(read) == 2, "the page of the key, and the state that is in no page"


class Shop(NamedTuple):
    shop: int
    amount: int


class Sold(NamedTuple):
    number: int
    largest: int


SOLD = StateDeclarations.value_state("sold", Sold)


class Columns(ArrowProcessFunction[Shop, Shop]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [SOLD]

    def process_batch(self, batch: Any, output: Any, ctx: ArrowContext[Shop]) -> None:
        ctx.keyed_state(SOLD).aggregate(
            batch["shop"], {"number": 1, "largest": batch["amount"]}, {"number": "sum", "largest": "max"}
        )
        output.collect_batch(batch)


def shop_of(record: Shop) -> int:
    return record.shop


def test_state_in_columns(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=False, clock=ManualClock()))
    env.set_parallelism(2)
    sink = Waiting()
    shops = orders_in(env, [Shop(n % 700, n) for n in range(2100)], "")
    shops.key_by(shop_of).process(Columns()).with_uid("sold").to_sink(sink).with_uid("out").with_parallelism(1)
    job = env.execute_async("shops", checkpoint_location=tmp_path, dashboard=SETTINGS)
    sink.wait_for(2100)
    state = connect(server_of(SETTINGS)[0].url).state("sold", SOLD)
    assert (state.get(0), state.get(699), state.get(700)) == (Sold(3, 1400), Sold(3, 2099), None)
    assert len(state.items(start=100, stop=200)) == 100
    job.stop()
    server_of(SETTINGS)[0].close()


class Sharing(OneInputStreamProcessFunction[Order, Any]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [SHARED]

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        ctx.state_manager.get_state(SHARED).add(record.amount)
        output.collect(record.key)


def test_errors_are_precise(jobs: Jobs) -> None:
    jobs.start(orders_of("a"))
    client = jobs.client()
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: client.state("other", ANY).get("a"), "no operator 'other' with states. It has: 'kept'"),
        (lambda: client.state("kept", "other").get("a"), "has no state 'other'. It has: 'amounts', 'any'"),
        (lambda: client.state("kept", ANY).get(1), 'of the type str: 1 does not stand for one. .* like "a"'),
        (lambda: client.state("kept", ANY).get(("a", 1)), "of the type str"),
        (lambda: client.state("kept", ANY).items(stop=1.5), "of the type str"),
        (lambda: client.state("kept", ANY).get(None), "A key cannot be None"),
        (lambda: client.state("kept", ANY).table(limit=0), "limit is a whole number from 1 to 100000"),
        (lambda: connect(jobs.url, job="x"), "Name the job, job=...: at http://127.0.0.1:[0-9]+ there are none."),
        (lambda: connect(jobs.url.partition("?")[0]), "requires the token"),
        (lambda: connect(jobs.url.partition("?")[0], token="another-token-of-16"), "requires its token"),
        (lambda: connect("127.0.0.1:8050", token=TOKEN), "such as http://127.0.0.1:8050"),
    ]
    for call, message in cases:
        with pytest.raises(ConfigurationError, match=message) as raised:
            call()
        assert TOKEN not in str(raised.value)


@with_workers
def test_state_of_subtasks_has_no_keys(jobs: Jobs) -> None:
    jobs.start(orders_of("a", "b"), Sharing(), checkpoint="shared")
    shared = jobs.client().state("kept", SHARED)
    assert sorted(n for row in shared.table().to_pylist() for n in row["value"]) == [0, 1]
    with pytest.raises(ConfigurationError, match=r"belongs to subtasks\. Read it without a key"):
        shared.get("a")


def test_requests_without_the_client(jobs: Jobs) -> None:
    jobs.start([Order(("a/b", -1), 5)])
    server, _ = server_of(SETTINGS)
    bearer = {"Authorization": f"Bearer {TOKEN}"}

    def asked(query: str, headers: dict[str, str] = bearer) -> tuple[int, Any]:
        answer = ask(server, f"/api/jobs/1/{query}", headers)
        return answer.status, json.loads(answer.body) if answer.body.startswith((b"{", b"[")) else answer.body

    row = {"subtask": 1, "key": {"_1": "a/b", "_2": -1}, "value": [5]}
    status, found = asked(f"rows?operator=kept&state=amounts&key={quote(json.dumps(['a/b', -1]))}")
    assert (status, found["more"]) == (200, False)
    assert [{**one, "subtask": 1} for one in found["rows"]] == [row]
    assert asked(f"rows?operator=kept&state=amounts&key={quote(json.dumps(row['key']))}")[1] == found
    assert asked("states")[1][-1] == {"operator": "kept", "state": "total", "kind": "ValueState", "has_keys": True}
    for query in ("", "key=null", "key=[", "key=NaN", "key=1&start=2", "limit=x", "key=" + "[" * 5000, "key=[[1],2]"):
        status, found = asked(f"rows?operator=kept&state=amounts&{query}")
        assert status == (400 if query else 200), query
    assert asked("rows?operator=kept")[0] == 400
    assert asked("states", {})[0] == 401
    assert asked("states", {"Authorization": "Bearer x"})[0] == 401


@with_workers
def test_queries_in_sql(jobs: Jobs) -> None:
    jobs.start(orders_of(*range(10)))
    client = jobs.client()
    joined = 'FROM kept."lives/long" lives JOIN kept.total USING (key) JOIN kept.total again USING (key)'
    found = client.sql(f"SELECT sum(lives.value) AS amount, sum(total.value.number) AS number {joined} WHERE key > 5")
    assert found.to_pylist() == [{"amount": 30, "number": 4}]
    assert found.schema.metadata[b"batch_id"]
    assert client.sql("SELECT count(*) AS n FROM kept.never WHERE key IS NOT NULL").to_pylist() == [{"n": 0}]
    limited = client.sql("SELECT key FROM kept.total ORDER BY key DESC", limit=2)
    assert (limited["key"].to_pylist(), limited.schema.metadata[b"more"]) == ([9, 8], b"true")
    for query, message in {
        "DELETE FROM kept.total": "Give one SELECT",
        "SELECT 1; SELECT 2": "Give one SELECT",
        "SELECT": "Give one SELECT",
        "SELECT * FROM kept.other": 'There is no state kept.other. There are: .*"lives/long"',
        "SELECT * FROM read_text('/etc/passwd')": "file system operations are disabled",
        "SELECT * FROM joined": "Table with name joined does not exist",
        "COPY (SELECT 1) TO '/tmp/x'": "Give one SELECT",
    }.items():
        with pytest.raises(ConfigurationError, match=message):
            client.sql(query)


def test_state_requires_a_token(tmp_path: Path) -> None:
    settings = Dashboard(0)
    env = ExecutionEnvironment.get_instance("local")
    orders_in(env, [1], "").to_sink(CollectSink[int]()).with_uid("out")
    job = env.execute_async("open", dashboard=settings, checkpoint_location=tmp_path)
    server, _ = server_of(settings)
    answer = ask(server, "/api/jobs/1/states")
    assert (answer.status, json.loads(answer.body)["message"]) == (
        403,
        "State requires a token: start this server with one.",
    )
    job.stop()
    server.close()


def test_jobs_without_committed_state(jobs: Jobs) -> None:
    jobs.start(orders_of("a"), checkpoint=None)
    with pytest.raises(ConfigurationError, match="has no checkpoint_location"):
        jobs.client().states()


def test_job_that_has_ended(jobs: Jobs) -> None:
    job = jobs.start(orders_of("a"))
    state = jobs.client().state("kept", ANY)
    job.stop()
    with pytest.raises(JobError, match=r"'orders' has ended\. To read its state, take a savepoint"):
        state.get("a")
    assert job.status is JobStatus.STOPPED
    server_of(SETTINGS)[0].close()
    with pytest.raises(JobError, match=r"http://127.0.0.1:\d+ does not answer"):
        state.get("a")


def test_job_before_its_first_micro_batch(jobs: Jobs) -> None:
    jobs.start([Order(-1, 1)], Blocking(), awaited=0)
    assert GATE.entered.wait(LONG)
    with pytest.raises(JobError, match="has not completed a micro-batch since it started"):
        jobs.client().state("kept", ANY).get(-1)


def test_values_of_earlier_versions_are_converted(jobs: Jobs) -> None:
    jobs.start(orders_of(*range(50)), checkpoint="versions").stop()
    job: Any = jobs.start([], Newer(), name="newer", checkpoint="versions", awaited=0)
    assert jobs.progress.wait(LONG)
    result = job.read_state(StateQuery("kept", "any", key=3))
    assert result.table["value"].to_pylist() == ["3"]
    values = job.read_state(StateQuery("kept", "any")).table["value"].to_pylist()
    assert sorted(values) == sorted(map(str, range(50)))


NEWER = StateDeclarations.value_state("any", str, version=2, migrate=lambda value, version: str(value))


class Newer(OneInputStreamProcessFunction[Order, Any]):
    def uses_states(self) -> Collection[StateDeclaration]:
        return [NEWER]

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        output.collect(record.key)
