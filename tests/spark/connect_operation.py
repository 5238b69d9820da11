"""A client of Spark Connect whose streaming jobs are changed, asked, cancelled and run together.

``python -m tests.spark.connect_operation URL FOLDER JOB ...``, as ``connect_streams``.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any
from unittest.mock import patch

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.client import connect
from dsv2.dead_letters import DeadLetters
from dsv2.jobs import Trigger
from dsv2.runtime.report import base_job
from dsv2.sources import DataGeneratorSource
from dsv2.views.dashboard import Dashboard
from dsv2.views.dashboard.server import server_of
from runtime_spark import StateKey, StateLayout
from storms.common.processes import Gate
from tests.dashboard_client import TOKEN
from tests.durations import LONG
from tests.spark import connect_streams
from tests.spark.connect_streams import COUNT, PER_BATCH, Client, Count, await_phase, failure_of, key_of, same


class Operation(Client):
    """The jobs of a client."""

    def changed(self) -> dict[str, Any]:
        """Continue with another parallelism and layout of state, and then without a change. Each run has new input."""
        found: dict[str, Any] = {}
        self.add_files(0)
        self.start(self.env_of_files()).await_termination()
        self.parallelism, self.runtime = 3, {"state_layout": StateLayout.MAP}
        for part in (1, 2):
            self.add_files(part)
            self.start(self.env_of_files()).await_termination()
            generations = self.checkpoint / "generations"
            offsets = (next(iter(sorted(generations.iterdir()))) / "offsets" / "0").read_bytes()
            found[f"run {part}"] = {"generations": len([*generations.iterdir()]), "in maps": b"RocksDB" in offsets}
        return {**self.written(), **found}

    def dropped(self) -> str:
        """Leave out the operator with the state of ``changed``."""
        env = ExecutionEnvironment.get_instance(spark=self.spark)
        env.from_source(DataGeneratorSource(same, count=1)).with_uid("in").to_sink(CollectSink[int]())
        return failure_of(lambda: self.start(env))

    def asked(self) -> dict[str, Any]:
        """Ask for the state of a job without an end. It is signed, and in maps."""
        self.runtime = {"state_layout": StateLayout.MAP, "state_key": StateKey(b"k" * 32)}
        return self._asked()

    def asked_in_one(self) -> dict[str, Any]:
        """Ask for the state of a job without an end. It is in one value for each subtask."""
        return self._asked()

    def _asked(self) -> dict[str, Any]:
        settings = Dashboard(0, token=TOKEN)
        job = self.start(self.env(None), Trigger.processing_time(), dashboard=settings)
        await_phase(job, lambda: job.progress.batch_id >= 1)
        client = connect(server_of(settings)[0].url)
        state = client.state("count", COUNT)
        rows = state.table().to_pylist()
        counted = client.sql('SELECT count(*) AS keys, min(value) = max(value) AS equal FROM "count"."count"')
        later = state.get(1)
        (run,) = (self.checkpoint / "connect").iterdir()
        (run / "stop").touch()  # as somebody without this client
        job.await_termination()
        after = failure_of(lambda: state.get(1))
        server_of(settings)[0].close()
        return {
            "keys": sorted(row["key"] for row in rows),
            "equal": len({row["value"] for row in rows}) == 1,
            "sql": counted.to_pylist(),
            "grows": later is not None and later >= rows[0]["value"] > 0,
            "after": after,
            "status": job.status.value,
        }

    def cancelled(self) -> dict[str, Any]:
        """Stop a job in a micro-batch that does not end, and continue it."""
        gate = Gate(self.folder, "counting")
        gate.shut()
        job = self.start(self.env(3 * PER_BATCH, Count(gate=gate)))
        await_phase(job, lambda: gate.waiting is not None)
        with patch.object(base_job, "_CANCEL_SECONDS", LONG):
            job.stop(timedelta(seconds=1))
        status = job.status.value
        gate.open()
        self.start(self.env(3 * PER_BATCH, Count(gate=gate))).await_termination()
        return {**self.written(), "status": status, "heard": self.heard.calls}

    def together(self) -> dict[str, Any]:
        """Run a job and fail in another one, while a third one waits in a micro-batch."""
        waiting, failing, quick = map(self._below, ("waiting", "failing", "quick"))
        gate = Gate(waiting.folder, "counting")
        gate.shut()
        first = waiting.start(waiting.env(3 * PER_BATCH, Count(gate=gate)))
        await_phase(first, lambda: gate.waiting is not None)
        second = quick.start(quick.env(2 * PER_BATCH))
        failure = failing.failure()
        second.await_termination()
        status = first.status.value
        gate.open()
        first.await_termination()
        return {"status": status, "failure": failure, "waiting": waiting.written(), "quick": quick.written()}

    def endless(self) -> None:
        """Read files, and wait for more of them without an end."""
        self.add_files(0)
        self.start(self.env_of_files(), Trigger.processing_time()).await_termination()

    def refused(self) -> str:
        """Start ``endless`` while it runs."""
        return failure_of(lambda: self.start(self.env_of_files()))

    def taken(self) -> dict[str, Any]:
        """Continue it with another file."""
        self.add_files(1)
        self.start(self.env_of_files()).await_termination()
        return self.written()

    def _below(self, name: str) -> Operation:
        folder = self.folder / name
        folder.mkdir()
        client = Operation(self.spark, folder)
        client.name = name
        return client

    def replayed(self) -> dict[str, Any]:
        """Process a dead letter again with a function that has no error."""
        self.add_files(0)
        for function in (Count(bad=4), Count()):
            env = ExecutionEnvironment.get_instance(spark=self.spark)
            counted = env.from_source(self.files()).with_uid("in").key_by(key_of).process(function).with_uid("count")
            counted.with_error_policy(ErrorPolicy().dead_letter()).to_sink(self.sink).with_uid("collected")
            self.start(env).await_termination()
            letters = DeadLetters.open(self.checkpoint)
            statuses = [letters.status(letter).value for letter in letters.letters]
            if statuses == ["new"]:
                letters.request_replay(letters.letters)
        return {**self.written(), "statuses": statuses}


if __name__ == "__main__":
    # The importable module, not this copy of it, so that the server's processes find the classes.
    from tests.spark import connect_operation

    connect_streams.main(*sys.argv[1:], client=connect_operation.Operation)
