"""The metrics that a ``PrometheusListener`` shows, as Prometheus reads them."""

from __future__ import annotations

import importlib
import re
import sys
import urllib.request
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

import dsv2.views.metrics.opentelemetry  # noqa: F401 - so that it can be removed
from components.server import free_ports
from dsv2 import Collector, ExecutionEnvironment, JobHandle, JobStatus, PartitionedContext
from dsv2.errors import ConfigurationError
from dsv2.extension.join import snapshot
from dsv2.jobs import JobListener, JobProgress
from dsv2.jobs.progress import BatchProgress, HistogramProgress, SplitProgress
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock, Stop, TestSource
from dsv2.version import __version__
from dsv2.views.metrics.definitions import ATTRIBUTES, METRICS, MetricKind
from dsv2.views.metrics.prometheus import PrometheusListener
from dsv2.views.metrics.samples import GAUGES_AMONG_COUNTERS
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX
from tests import ROOT
from tests.metered import NOON_MS, PlayedJob

HISTOGRAM = HistogramProgress((0.5, 2.0), (1, 2, 3), 12.5, 0.25, 9.0)
SPLITS = (
    SplitProgress("a", 0, lag=5, event_time=2_000),
    SplitProgress("b", 1, lag=7, event_time=1_000, idle=True),
    SplitProgress("c", 1, event_time=3_000, paused=True),
    SplitProgress("d", 1, event_time=LONG_MAX, ended=True),
)


def count(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    ctx.metric_group.counter("seen").inc()
    output.collect(record)


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(registry: CollectorRegistry) -> PrometheusListener:
    return PrometheusListener(registry=registry, clock=ManualClock(NOON_MS))


def samples(text: str) -> dict[str, float]:
    """The samples by their name and labels, without the label of the job if there is one job only."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()) if value != "shop")
            key = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert key not in found, "a duplicate"
            found[key] = sample.value
    return found


def scraped(registry: CollectorRegistry) -> dict[str, float]:
    text = openmetrics.generate_latest(registry).decode()
    strict = {sample.name for family in parse_openmetrics(text) for sample in family.samples}
    found = samples(generate_latest(registry).decode())
    assert strict == {key.partition("{")[0] for key in found}
    return found


def test_job_that_has_not_completed_a_micro_batch(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start()
    found = scraped(registry)
    assert found.pop("dsv2_batch_duration_seconds_bucket{le=+Inf}") == 0
    assert {key: value for key, value in found.items() if "_bucket" not in key} == {
        "dsv2_batch_duration_seconds_count": 0,
        "dsv2_batch_duration_seconds_sum": 0,
        "dsv2_job_ends_total{status=failed}": 0,
        "dsv2_job_ends_total{status=finished}": 0,
        "dsv2_job_ends_total{status=stopped}": 0,
        f"dsv2_job_info{{bounded=false,mode=streaming,version={__version__}}}": 1,
        "dsv2_job_restarts_total": 0,
        "dsv2_job_start_time_seconds": NOON_MS / 1000,
        "dsv2_operator_info{name=Orders,operator=orders,parallelism=2}": 1,
        "dsv2_operator_info{name=Process,operator=join,parallelism=2}": 1,
        "dsv2_operator_info{name=Sink,operator=out,parallelism=2}": 1,
    }, "counters continue from the checkpoint, so they are not 0 but unknown"


def test_operator(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start().report(records=10, event_times=(5_000, 3_500), watermarks={"day": (4, None, 2)})
    found = scraped(registry)
    assert {key: value for key, value in found.items() if key.startswith(("dsv2_operator", "dsv2_input"))}.items() >= {
        "dsv2_operator_records_in_total{operator=join}": 10,
        "dsv2_operator_records_out_total{operator=join}": 10,
        "dsv2_operator_records_held{operator=join}": 6,
        "dsv2_operator_late_records_total{operator=join}": 2,
        "dsv2_operator_user_time_seconds_total{operator=join}": 0.031,
        "dsv2_operator_keys{operator=join}": 20,
        "dsv2_operator_timers{operator=join}": 1,
        "dsv2_operator_state_size_bytes{operator=join}": 2001,
        "dsv2_operator_largest_state_size_bytes{operator=join}": 1001,
        "dsv2_operator_event_time_seconds{operator=join}": 3.5,
        "dsv2_operator_watermark{operator=join,watermark=day}": 2,
        "dsv2_operator_errors_total{operator=join,outcome=dead_lettered}": 0,
        "dsv2_input_channels{input=0,operator=join,state=active}": 3,
        "dsv2_input_channels{input=0,operator=join,state=idle}": 1,
        "dsv2_input_channels{input=0,operator=join,state=ended}": 0,
        "dsv2_operator_records_out_total{operator=orders}": 10,
    }.items()
    assert "dsv2_operator_event_time_seconds{operator=orders}" not in found


@pytest.mark.parametrize("times", [(), (None, None), (LONG_MAX, LONG_MAX)])
def test_no_event_time_or_the_end_of_it(listener: PrometheusListener, registry: CollectorRegistry, times: Any) -> None:
    PlayedJob(listener).start().report(event_times=times, watermarks={EVENT_TIME: (LONG_MAX,)})
    assert not [key for key in scraped(registry) if "event_time" in key or "watermark{" in key]


def test_micro_batches(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    job = PlayedJob(listener).start().report(41).report(42)
    job.report(42)  # nothing new
    found = scraped(registry)
    assert found["dsv2_batch_id"] == 42
    assert found["dsv2_batch_end_time_seconds"] == NOON_MS / 1000 + 42.4
    assert (found["dsv2_batch_duration_seconds_count"], found["dsv2_batch_duration_seconds_sum"]) == (2, 0.8)
    assert found["dsv2_batch_duration_seconds_bucket{le=0.25}"] == 0
    assert found["dsv2_batch_duration_seconds_bucket{le=0.5}"] == 2
    assert found["dsv2_batch_phase_time_seconds_total{phase=planning}"] == 0.2


def test_history_of_earlier_runs_is_not_counted(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    history = tuple(BatchProgress(number, NOON_MS, 100.0) for number in range(5))
    PlayedJob(listener).start().report(4, batches=history)
    assert scraped(registry)["dsv2_batch_duration_seconds_count"] == 1


def test_errors_by_their_outcome(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start().report(counters={"errors_skipped": 2, "errors_dead_lettered": 3, "errors_retried": 4})
    found = scraped(registry)
    outcomes = {key: value for key, value in found.items() if "errors" in key and "join" in key}
    assert outcomes == {
        "dsv2_operator_errors_total{operator=join,outcome=retried}": 4,
        "dsv2_operator_errors_total{operator=join,outcome=skipped}": 2,
        "dsv2_operator_errors_total{operator=join,outcome=dead_lettered}": 3,
    }


def test_splits_of_a_source(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start().report(splits=SPLITS)
    found = scraped(registry)
    assert found["dsv2_source_records_lag{operator=orders}"] == 12
    assert found["dsv2_source_event_time_seconds{operator=orders}"] == 2
    for state in ("active", "idle", "paused", "ended"):
        assert found[f"dsv2_source_splits{{operator=orders,state={state}}}"] == 1
    assert not [key for key in found if "split=" in key]


def test_source_that_does_not_know_its_lag(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start().report(splits=(SplitProgress("a", 0),), batches=())
    found = scraped(registry)
    assert found["dsv2_source_splits{operator=orders,state=active}"] == 1
    assert not [key for key in found if "lag" in key or "batch_end_time" in key]


def test_each_split(registry: CollectorRegistry) -> None:
    PlayedJob(PrometheusListener(registry=registry, per_split=True)).start().report(splits=SPLITS)
    of_splits = {key: value for key, value in scraped(registry).items() if "split=" in key}
    assert of_splits == {
        "dsv2_split_records_lag{operator=orders,split=a}": 5,
        "dsv2_split_records_lag{operator=orders,split=b}": 7,
        "dsv2_split_event_time_seconds{operator=orders,split=a}": 2,
        "dsv2_split_event_time_seconds{operator=orders,split=b}": 1,
        "dsv2_split_event_time_seconds{operator=orders,split=c}": 3,
    }


def test_each_subtask(registry: CollectorRegistry) -> None:
    PlayedJob(PrometheusListener(registry=registry, per_subtask=True)).start().report(records=10, event_times=(1, 2))
    found = scraped(registry)
    for metric in METRICS:
        if metric.per_subtask:
            in_join = [key for key in found if key.startswith(f"{metric.in_prometheus}{{operator=join")]
            assert in_join == [f"{metric.in_prometheus}{{operator=join,subtask={index}}}" for index in range(2)]
    assert found["dsv2_operator_event_time_seconds{operator=join,subtask=1}"] == 0.002


def test_metrics_of_functions(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).start().report(
        counters={"seen": 3, "cache hits/s": 4, "probe_records_waiting": 5},
        gauges={"size": 1.5},
        histograms={"delay": HISTOGRAM},
    )
    found = {key: value for key, value in scraped(registry).items() if key.startswith("dsv2_function")}
    assert found == {
        "dsv2_function_seen_total{operator=join}": 3,
        "dsv2_function_cache_hits_s_total{operator=join}": 4,
        "dsv2_function_probe_records_waiting{operator=join}": 5,
        "dsv2_function_size{operator=join}": 1.5,
        "dsv2_function_delay_bucket{le=0.5,operator=join}": 1,
        "dsv2_function_delay_bucket{le=2.0,operator=join}": 3,
        "dsv2_function_delay_bucket{le=+Inf,operator=join}": 6,
        "dsv2_function_delay_count{operator=join}": 6,
        "dsv2_function_delay_sum{operator=join}": 12.5,
    }


def test_counters_of_dsv2_that_decrease_are_gauges() -> None:
    assert {snapshot.PROBES_WAITING} == GAUGES_AMONG_COUNTERS


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"counters": {"a b": 1, "a.b": 2}}, "a.b"),
        ({"counters": {"x": 1, "x_total": 2}}, "x_total"),
        ({"counters": {"x": 1}, "gauges": {"x_total": 2.0}}, "x_total"),
        ({"gauges": {"delay_count": 2.0}, "histograms": {"delay": HISTOGRAM}}, "delay"),
    ],
)
def test_names_that_would_be_equal(
    listener: PrometheusListener,
    registry: CollectorRegistry,
    caplog: pytest.LogCaptureFixture,
    first: dict[str, Any],
    second: str,
) -> None:
    PlayedJob(listener).start().report(**first)
    assert scraped(registry) == (found := scraped(registry))
    assert len([key for key in found if key.startswith("dsv2_function")]) == 1
    (text,) = {record.getMessage() for record in caplog.records}
    assert f"{second!r} of functions is not shown to Prometheus" in text
    assert len(caplog.records) == 1, "once"


def test_unusual_values_of_labels(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    job = PlayedJob(listener, name='a "quoted"\nname \\ with ünïcode').start().report()
    assert any(job.name in str(family.samples) or family.samples for family in registry.collect())
    text = generate_latest(registry).decode()
    names = {sample.labels.get("job_name") for one in text_string_to_metric_families(text) for sample in one.samples}
    assert names == {job.name}


def test_counters_continue_after_a_restart(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    name = "dsv2_operator_records_in_total{operator=join}"
    job = PlayedJob(listener).start().report(7, records=70).report(8, records=80)
    job.end(JobStatus.FAILED)
    assert name not in scraped(registry)
    job.start()
    assert name not in scraped(registry), "0 would look like a reset, and the next value like 80 new records"
    job.report(8, records=80)  # the micro-batch is repeated
    assert scraped(registry)[name] == 80
    job.report(9, records=90)
    assert scraped(registry)[name] == 90


class Scraping(JobListener):
    """Scrapes after each micro-batch."""

    def __init__(self, registry: CollectorRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self.values: list[float] = []

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.values.append(scraped(self._registry)[self._name])


@pytest.mark.parametrize(
    "name",
    [
        "dsv2_function_seen_total{operator=f}",
        "dsv2_operator_records_in_total{operator=f}",
        "dsv2_operator_records_out_total{operator=in}",
        "dsv2_operator_records_in_total{operator=out}",
    ],
)
def test_counters_of_a_job_that_is_stopped_and_started_again(checkpoint: str, name: str) -> None:
    registry = CollectorRegistry()
    prometheus, scraping = PrometheusListener(registry=registry), Scraping(registry, name)
    for _ in range(3):
        env = ExecutionEnvironment.get_instance(LocalRuntime())
        env.add_job_listener(prometheus)
        env.add_job_listener(scraping)
        source = TestSource[int]([1, 2, Stop(), 3, 4, 5, Stop(), 6], records_per_batch=1)
        env.from_source(source).with_uid("in").process(count).with_uid("f").to_sink(CollectSink[int]()).with_uid("out")
        env.execute("shop", checkpoint_location=checkpoint)
    assert scraping.values == sorted(scraping.values)
    assert set(scraping.values) == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("status", [JobStatus.FINISHED, JobStatus.STOPPED, JobStatus.FAILED])
def test_metrics_of_an_ended_job_are_removed(
    listener: PrometheusListener, registry: CollectorRegistry, status: JobStatus
) -> None:
    PlayedJob(listener).start().report(records=10).end(status)
    found = scraped(registry)
    assert found == {
        f"dsv2_job_ends_total{{status={one.value.lower()}}}": float(one is status)
        for one in (JobStatus.FINISHED, JobStatus.STOPPED, JobStatus.FAILED)
    }


def test_several_jobs(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    shop, stock = PlayedJob(listener).start(), PlayedJob(listener, "stock").start()
    shop.report(records=10)
    stock.report(records=20)
    found = scraped(registry)
    assert found["dsv2_operator_records_in_total{operator=join}"] == 10
    assert found["dsv2_operator_records_in_total{job_name=stock,operator=join}"] == 20
    shop.end()
    found = scraped(registry)
    assert "dsv2_operator_records_in_total{operator=join}" not in found
    assert found["dsv2_operator_records_in_total{job_name=stock,operator=join}"] == 20


def test_two_jobs_of_one_name(
    listener: PrometheusListener, registry: CollectorRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = PlayedJob(listener).start(), PlayedJob(listener).start()
    assert "Two jobs named 'shop' run in this process." in caplog.text
    second.report(records=20)
    first.report(records=10)
    assert scraped(registry)["dsv2_operator_records_in_total{operator=join}"] == 20


def test_progress_of_an_unknown_job_is_ignored(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    PlayedJob(listener).report(records=10)
    assert scraped(registry) == {}


def test_names_of_ended_jobs_are_bounded(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    running = PlayedJob(listener, "stays").start()
    job = PlayedJob(listener)
    for number in range(1_200):
        object.__setattr__(job.plan, "job_name", f"job {number}")
        job.start().end()
    names = {sample.labels["job_name"] for family in registry.collect() for sample in family.samples}
    assert len(names) == 1_000
    assert {running.name, "job 1199"} <= names


def test_served_over_http() -> None:
    (port,) = free_ports(1)
    listener = PrometheusListener(port, registry=CollectorRegistry())
    PlayedJob(listener).start().report(records=10)
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
        found = samples(answer.read().decode())
    assert found["dsv2_operator_records_in_total{operator=join}"] == 10
    listener.close()
    again = PrometheusListener(port, registry=CollectorRegistry())
    assert repr(again) == f"PrometheusListener({port})"
    again.close()
    assert repr(again) == "PrometheusListener()"


def test_port_in_use() -> None:
    first, registry = PrometheusListener(0, registry=CollectorRegistry()), CollectorRegistry()
    expected = f"Port {first.port} of 127.0.0.1 is already in use. Choose another one, or 0 for any free port."
    with pytest.raises(ConfigurationError, match=expected):
        PrometheusListener(first.port, registry=registry)
    first.close()
    PrometheusListener(registry=registry).close()  # the failed one has not left anything in it
    PrometheusListener(registry=registry)


@pytest.mark.parametrize(("port", "expected"), [(-1, "port must be"), (65_536, "cannot be used"), ("80", "port must")])
def test_wrong_port(port: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError, match=expected):
        PrometheusListener(port, registry=CollectorRegistry())


def test_registry_takes_one_listener(listener: PrometheusListener, registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigurationError, match="The registry of prometheus-client already has a PrometheusListener"):
        PrometheusListener(registry=registry)


def table(heading: str) -> list[list[str]]:
    """The rows of the table of docs/metrics.md that begins with ``heading``."""
    _, _, text = (ROOT / "docs" / "metrics.md").read_text().partition(f"\n{heading}")
    rows = text.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.split("|")[1:-1]] for row in rows]


def test_all_metrics_are_documented() -> None:
    documented = table("| Prometheus | OpenTelemetry | type |")
    assert documented == [
        [
            metric.in_prometheus,
            "" if metric.kind is MetricKind.INFO else metric.in_opentelemetry,
            metric.kind.value,
            metric.unit,
            ("`, `".join(metric.labels) + ("` (`subtask`)" if metric.per_subtask else "`")).strip("`"),
            metric.description,
        ]
        for metric in METRICS
    ]


def test_all_attributes_are_documented() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert all(f"| `{label}` | `{attribute}` |" in text for label, attribute in ATTRIBUTES.items())


def test_all_alerts_are_documented() -> None:
    rules = (ROOT / "docs" / "assets" / "monitoring" / "dsv2-alerts.yml").read_text()
    assert [name for name, _ in table("| alert | fires if |")] == re.findall(r"- alert: (\w+)", rules)


@pytest.mark.parametrize("module", ["dsv2.views.metrics.prometheus", "dsv2.views.metrics.opentelemetry"])
def test_missing_library_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsv2.checks.client_library.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigurationError, match=r'which is not installed. Install it: pip install "dsv2\[metrics\]"'):
        importlib.import_module(module)


def test_names_follow_the_conventions() -> None:
    for metric in METRICS:
        name = metric.in_prometheus
        assert name.startswith("dsv2_")
        assert name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert name.endswith("_info") == (metric.kind is MetricKind.INFO)
        assert {"s": "_seconds", "By": "_bytes"}.get(metric.unit, "") in name
        assert "job" not in metric.labels, "the label that Prometheus adds to each target"
