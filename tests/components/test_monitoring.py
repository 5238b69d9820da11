"""The Grafana dashboard and the alert rules of the documentation, with a real Prometheus server."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from components.prometheus import PrometheusServer, check_rules
from components.server import MissingComponentError
from dsv2 import Collector, ErrorPolicy, ExecutionEnvironment, JobHandle, JobStatus, PartitionedContext, Trigger
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.progress import BatchProgress, SplitProgress
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from dsv2.views.metrics.definitions import METRICS
from dsv2.views.metrics.prometheus import PrometheusListener
from dsv2.watermark import WatermarkDeclaration, new_builder
from tests import ROOT
from tests.metered import NOON_MS, PlayedJob
from tests.spans import Item, Spans

NewServer = Callable[..., PrometheusServer]

MONITORING = ROOT / "docs" / "assets" / "monitoring"
RULES = MONITORING / "dsv2-alerts.yml"
ALERTS = re.findall(r"^ +- alert: (\w+)$", RULES.read_text(), re.MULTILINE)
DEADLINE_SECONDS = 60.0
HIGHEST = new_builder("highest").type_long().combine_function_max().build()


@pytest.fixture
def listener() -> Iterator[PrometheusListener]:
    listener = PrometheusListener(0, registry=CollectorRegistry())
    yield listener
    listener.close()


def eventually(happened: Callable[[], bool], meanwhile: Callable[[], object] = lambda: None) -> bool:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not happened() and time.monotonic() < deadline:
        meanwhile()
        time.sleep(0.05)
    return happened()


def shortened(folder: Path) -> Path:
    """The rules with durations of some seconds instead of minutes."""
    text = re.sub(r"\b\d+m\b(?=[\]:])", "4s", RULES.read_text())
    text = text.replace("[4s:]", "[4s:400ms]")
    path = folder / "alerts.yml"
    path.write_text(re.sub(r"for: \d+m", "for: 1200ms", text))
    return path


class Shop:
    """A job that is played, and whose numbers grow with each micro-batch."""

    def __init__(self, listener: PrometheusListener, name: str) -> None:
        self.job = PlayedJob(listener, name).start()
        self._number = 0

    def report(
        self,
        *,
        moves: bool = True,
        waits: bool = False,
        growing_lag: bool = False,
        errors: bool = False,
        seconds: float = 0.1,
        ended_ago: float = 0.0,
        largest_state: int = 0,
    ) -> None:
        self._number += 1
        number = self._number
        now_ms = int(time.time() * 1000)
        lag = 2_000 + 10 * number if growing_lag else 50
        self.job.report(
            number,
            records=100 * number,
            event_times=(None if waits else now_ms if moves else 1_000, now_ms),
            counters={"errors_dead_lettered": 100 * number if errors else 2},
            splits=(SplitProgress("a", 0, lag=lag),),
            largest_state=largest_state,
            batches=(BatchProgress(number, now_ms - round((seconds + ended_ago) * 1000), seconds * 1000),),
        )


class Order(NamedTuple):
    """A record of the job that is scraped."""

    number: int
    at: int


class Totals(OneInputStreamProcessFunction[Order, int]):
    """Refuses some records, and has metrics and a watermark of its own."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [HIGHEST]

    def process_record(self, record: Order, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        if record.number % 10 == 3:
            raise ValueError("refused")
        ctx.metric_group.histogram("numbers", [10, 100]).update(record.number)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(HIGHEST.new_watermark(record.number))
        output.collect(record.number)


def pass_on(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    output.collect(record)


def time_of(order: Order) -> int:
    return order.at


def time_of_item(item: Item) -> int:
    return NOON_MS + item.number


def remainder(order: Order) -> int:
    return order.number % 4


def start_job(listener: PrometheusListener) -> JobHandle:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.add_job_listener(listener)
    source = DataGeneratorSource(lambda index: Order(index, NOON_MS + 10 * index), records_per_second=200.0)
    event_time = EventTimeExtension.new_watermark_generator_builder(time_of).per_event_watermark()
    timed = env.from_source(source).with_uid("orders").process(event_time.build_as_process_function())
    totals = timed.with_uid("time").key_by(remainder).process(Totals()).with_uid("totals")
    totals.with_error_policy(ErrorPolicy().skip(ValueError))
    totals.shuffle().process(pass_on).with_uid("last").to_sink(CollectSink()).with_uid("out")
    by_number = EventTimeExtension.new_watermark_generator_builder(time_of_item).per_event_watermark()
    of_splits = by_number.build_as_watermark_strategy()
    spans = env.from_source(Spans({"a": 5}, bounded=False), watermarks=of_splits).with_uid("spans")
    spans.to_sink(CollectSink()).with_uid("seen")
    every = Trigger.processing_time(timedelta(milliseconds=100))
    return env.execute_async("orders", trigger=every)


def expressions() -> list[str]:
    """Those of the dashboard, as Grafana sends them."""
    dashboard = json.loads((MONITORING / "dsv2-grafana.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    found += [annotation["expr"] for annotation in dashboard["annotations"]["list"]]
    values = {"$job_name": ".*", "$__rate_interval": "3s", "$__range": "3s", "[1m]": "[3s]"}
    return [re.sub("|".join(map(re.escape, values)), lambda name: values[name.group()], text) for text in found]


def test_dashboard(listener: PrometheusListener, new_prometheus_server: NewServer) -> None:
    server = new_prometheus_server(listener.port)
    job = start_job(listener)
    missing = set(expressions())
    *_, annotation = expressions()
    missing.discard(annotation)  # it marks starts, which are rare
    missing -= {one for one in missing if "state_size" in one}  # unknown in local jobs

    def all_found() -> bool:
        missing.difference_update([one for one in missing if any(value == value for _, value in server.query(one))])
        return not missing

    try:
        found = eventually(all_found)
        assert server.query(annotation) == []
        assert found, missing
        [(sum_of_labels, count)] = server.query("sum(dsv2_function_numbers_count)")
    finally:
        job.stop()
    assert (sum_of_labels, count > 0) == ({}, True)
    assert eventually(lambda: server.query("dsv2_batch_id") == []), "removed when the job has ended"


def test_panels_of_the_dashboard_are_complete() -> None:
    panels = json.loads((MONITORING / "dsv2-grafana.json").read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    known = {metric.in_prometheus for metric in METRICS}
    for panel in panels:
        assert panel["title"]
        for target in panel.get("targets", ()):
            assert panel["description"].endswith(".")
            names = set(re.findall(r"dsv2_\w+", target["expr"]))
            assert names
            assert {re.sub("_(bucket|sum|count)$", "", name) for name in names} <= known


@pytest.mark.prometheus
def test_rules_are_valid() -> None:
    try:
        check_rules(RULES)
    except MissingComponentError as error:
        pytest.skip(str(error))


def test_alerts(listener: PrometheusListener, new_prometheus_server: NewServer, tmp_path: Path) -> None:
    names = ["healthy", "fails", "restarts", "vanishes", "stuck", "waits", "behind", "bad", "slow", "hangs", "large"]
    shops = {name: Shop(listener, name) for name in names}
    server = new_prometheus_server(listener.port, shortened(tmp_path))

    ended: set[str] = set()

    def play() -> None:
        for name, shop in shops.items():
            if name in ended:
                continue
            shop.report(
                moves=name != "stuck",
                waits=name == "waits",
                growing_lag=name == "behind",
                errors=name == "bad",
                largest_state=600 << 20 if name == "large" else 1_000,
                seconds=100.0 if name == "slow" else 0.1,
                ended_ago=2_000.0 if name == "hangs" else 0.0,
            )

    def is_scraped() -> bool:
        return len(server.query("dsv2_batch_id")) == len(shops)

    assert eventually(is_scraped, play)
    ended |= {"fails", "vanishes"}
    shops["fails"].job.end(JobStatus.FAILED)
    shops["vanishes"].job.end(JobStatus.RUNNING)  # as if its process were gone
    expected = {
        ("Dsv2JobFailed", "fails"),
        ("Dsv2JobRestarts", "restarts"),
        ("Dsv2JobMissing", "vanishes"),
        ("Dsv2WatermarkStuck", "stuck"),
        ("Dsv2WatermarkStuck", "waits"),
        ("Dsv2LagGrows", "behind"),
        ("Dsv2RecordsNotProcessed", "bad"),
        ("Dsv2LongMicroBatches", "slow"),
        ("Dsv2MicroBatchHangs", "hangs"),
        ("Dsv2StateLarge", "large"),
    }
    assert {alert for alert, _ in expected} == set(ALERTS)
    fired: set[tuple[str, str]] = set()

    def all_fired() -> bool:
        fired.update(server.firing())
        return expected <= fired

    def play_and_restart() -> None:
        play()
        shops["restarts"].job.end(JobStatus.STOPPED)
        shops["restarts"].job.start()

    assert eventually(all_fired, play_and_restart), expected - fired
    assert {alert for alert in fired if alert[1] == "healthy"} == set()
