"""Checkpoints that a job must not be started from: of another program, of no program of ours, or damaged."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import runtime_spark.runtime
from dsv2 import CorruptDataError, ExecutionEnvironment, IncompatibleCheckpointError, UserFunctionError
from dsv2.runtime.types import TypeRegistry
from dsv2.sinks import CollectSink
from runtime_spark.layout import Layout
from runtime_spark.stage import StreamingStage, streaming_stage
from runtime_spark.worker import pack_job
from tests.spark.programs import Reading, build, read_back, reading, sensor_of

COUNT, PER_BATCH = 30, 15


def unreadable_from_the_second_batch_on(index: int) -> Reading:
    if index >= PER_BATCH:
        raise OSError("not readable yet")
    return reading(index)


def by_place(record: Reading) -> str:
    return record.place


@pytest.fixture(scope="module")
def after_one_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that failed in its second micro-batch."""
    folder = tmp_path_factory.mktemp("job")
    with pytest.raises(UserFunctionError, match="not readable yet"):
        run(spark, folder, generator=unreadable_from_the_second_batch_on)
    return folder


@pytest.fixture
def folder(after_one_batch: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(after_one_batch, tmp_path / "job"))


def run(spark: SparkSession, folder: Path, **changes: Any) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    build(env, f"{folder}/out", COUNT, PER_BATCH, **changes)
    env.execute("refused", checkpoint_location=f"{folder}/checkpoint")


def assert_refused(spark: SparkSession, folder: Path, **changes: Any) -> str:
    """Nothing may have happened in the folder. Returns what is said."""
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(IncompatibleCheckpointError) as refused:
        run(spark, folder, **changes)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    return str(refused.value)


def manifest_file(folder: Path) -> Path:
    return folder / "checkpoint" / "dsv2" / "manifest.json"


def test_a_changed_program_is_refused_before_any_batch(spark: SparkSession, folder: Path) -> None:
    text = assert_refused(spark, folder, key=by_place)
    first, difference, advice = text.splitlines()
    assert first == f"The checkpoint {folder}/checkpoint cannot be continued by this program:"
    assert difference.startswith("  - operator 'total' (defined at ")
    assert difference.endswith("): the key selector of input 0 computes something else than before")
    assert advice.startswith("Undo the change, or start from a new checkpoint_location")
    # The one that wrote it goes on.
    run(spark, folder, key=sensor_of)
    assert {row[0] for row in read_back(folder / "out")} == {0, 1}


def test_the_manifest_is_json_for_people(folder: Path) -> None:
    manifest = json.loads(manifest_file(folder).read_text())
    assert list(manifest["operators"]) == ["readings", "number", "double", "tag", "total"]
    assert manifest["operators"]["tag"]["parallelism"] == 3
    assert manifest["operators"]["tag"]["defined_at"].startswith(str(Path(__file__).with_name("programs.py")))
    assert manifest["job_name"] == "refused"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "is damaged: "),
        (lambda text: "{}", "is damaged: it is not one of dsv2."),
        (lambda text: "7", "is damaged: it is not one of dsv2."),
        (
            lambda text: text.replace('"format_version": ', '"format_version": 9'),
            "it was written with state format 9",
        ),
    ],
)
def test_a_damaged_manifest_is_refused(
    spark: SparkSession, folder: Path, damage: Callable[[str], str], said: str
) -> None:
    file = manifest_file(folder)
    file.write_text(damage(file.read_text()))
    assert said in assert_refused(spark, folder)


def test_a_checkpoint_without_manifest_is_refused(spark: SparkSession, folder: Path) -> None:
    shutil.rmtree(folder / "checkpoint" / "dsv2")
    assert "holds a checkpoint, but not one of dsv2" in assert_refused(spark, folder)


def test_the_checkpoint_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a line\n")
    lines = spark.readStream.text(str(tmp_path / "in")).writeStream.format("noop").trigger(availableNow=True)
    lines.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
    assert "holds a checkpoint, but not one of dsv2" in assert_refused(spark, tmp_path)


# --- Damaged state ----------------------------------------------------------------------------------------------------


class State:
    """Stands in for a ``GroupState``; what it holds may be tampered with."""

    def __init__(self, blob: bytes | None = None) -> None:
        self.blob = blob

    @property
    def exists(self) -> bool:
        return self.blob is not None

    @property
    def get(self) -> tuple[bytes | None]:
        return (self.blob,)

    def update(self, value: tuple[bytes]) -> None:
        (self.blob,) = value

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802 - Spark's name
        return 0


def flipped(blob: bytes, place: int) -> bytes:
    place %= len(blob)
    return blob[:place] + bytes([blob[place] ^ 0x10]) + blob[place + 1 :]


def stage_of_total() -> tuple[StreamingStage, int]:
    """The last stage of the program as Spark calls it, and the slot of a subtask of ``total``."""
    env = ExecutionEnvironment.get_instance("local")
    build(env, "unused", COUNT, PER_BATCH).to_sink(CollectSink())
    plan = env.build_plan()
    layout = Layout.of(plan)
    total = next(operator for operator in plan.operators if operator.uid == "total")
    return streaming_stage(pack_job(plan, layout, TypeRegistry.of(plan)), 2), layout.slots_of(total)[1]


def call(stage: StreamingStage, slot: int, state: State) -> None:
    """One micro-batch without records."""
    no_frames = pd.DataFrame({"seq": [], "channel": [], "payload": []})
    for _ in stage((slot,), iter([no_frames]), state):  # type: ignore[arg-type]
        pass


def test_state_that_is_not_whole_is_refused_with_its_operator() -> None:
    stage, slot = stage_of_total()
    whole = State()
    call(stage, slot, whole)
    assert whole.blob is not None
    call(stage, slot, State(whole.blob))
    damaged = [flipped(whole.blob, place) for place in range(len(whole.blob))]
    damaged += [whole.blob[:length] for length in (0, 5, 20, len(whole.blob) - 1)]
    damaged += [whole.blob + b"\0", bytes(len(whole.blob))]
    for blob in damaged:
        with pytest.raises(Exception, match=r"State of KeyedProcess \(uid 'total'\), subtask 1: "):
            call(stage, slot, State(blob))


def tampering_stage(packed: bytes, level: int, *, timed: bool) -> StreamingStage:
    """The stage as it is, but the state of its third level comes back with a bit flipped."""
    stage = streaming_stage(packed, level, timed=timed)

    def run_slot(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if level == 2 and state.exists:
            state = State(flipped(bytes(state.get[0]), -10))
        return stage(key, frames, state)

    return run_slot


def test_damaged_state_fails_the_job_and_is_never_used(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_back(folder / "out")
    with monkeypatch.context() as patched:
        patched.setattr(runtime_spark.runtime, "streaming_stage", tampering_stage)
        with pytest.raises(CorruptDataError) as refused:
            run(spark, folder)
    assert str(refused.value).startswith("State of KeyedProcess (uid 'total'), subtask ")
    assert "the bytes are damaged" in str(refused.value)
    assert read_back(folder / "out") == before


def test_a_collection_that_has_grown_since_the_job_came_to_its_end(spark: SparkSession, checkpoint: str) -> None:
    def run_with(*numbers: int) -> list[int]:
        env, sink = ExecutionEnvironment.get_instance(spark=spark), CollectSink[int]()
        env.from_collection(numbers).key_by(abs).process(passing).to_sink(sink)
        env.execute("grown", checkpoint_location=checkpoint)
        return sink.results

    def passing(number: int, output: Any, ctx: Any) -> None:
        output.collect(number)

    assert run_with(1, 2) == [1, 2]
    assert run_with(1, 2) == []
    with pytest.raises(IncompatibleCheckpointError, match="ended after 2 records, and holds 3 now"):
        run_with(1, 2, 3)
