"""A dashboard of a job on Spark: the job itself, and its checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.plan_view.runtime_view import ObservableRuntime
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.jobs import Status
from dsv2.views.dashboard.server import server_of
from dsv2.views.dashboard.stored_job import CheckpointJob
from runtime_spark import SparkRuntime
from tests.dashboard_client import get

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def only_even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def test_job_and_its_checkpoint(spark: SparkSession, checkpoint: str) -> None:
    runtime = SparkRuntime(spark)
    assert isinstance(runtime, ObservableRuntime)
    settings = Dashboard(0)
    server, _ = server_of(settings)
    try:
        env = ExecutionEnvironment.get_instance(runtime)
        numbers = env.from_collection(range(20), records_per_batch=10).with_uid("numbers").shuffle()
        even = numbers.map(only_even).with_uid("even").with_error_policy(ErrorPolicy().dead_letter(ValueError))
        even.to_sink(CollectSink[int]()).with_uid("collected")
        env.execute("halves", checkpoint_location=checkpoint, dashboard=settings)
        page = get(server, "/api/jobs/1")
        assert (page["status"], page["operators"]["1"]["records_out"]) == ("finished", 10)
        (first, *_) = get(server, "/api/jobs/1/history")["batches"]
        assert {"planning", "level 1", "sinks", "commit"} <= set(first["phases"])
        shown = {one["title"]: {each["name"]: each["value"] for each in one["settings"]}
                 for one in get(server, "/api/jobs/1/configuration")}  # fmt: skip
        assert shown["Runtime"]["Spark"] == spark.version
        assert shown["Runtime"]["spark.master"] == "local[2]"
        assert len(get(server, "/api/jobs/1/letters")["letters"]) == 10
    finally:
        server.close()
    stored = CheckpointJob(runtime.open_folder(checkpoint))
    stored.refresh()
    snapshot = stored.record.snapshot()
    assert (snapshot.status, snapshot.name, snapshot.error) == (Status.STORED, "halves", "")
    assert snapshot.plan is not None
    assert [operator.uid for operator in snapshot.plan.operators] == ["numbers", "even", "collected"]
    assert len(snapshot.history) >= 2
    assert [section.title for section in snapshot.configuration] == ["Job", "Sources and sinks", "Runtime"]
