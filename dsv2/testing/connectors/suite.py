"""The common part of the test suites: jobs, and checks whose failures name the mistake."""

from __future__ import annotations

import logging
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from logging.handlers import BufferingHandler
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from unittest import SkipTest
from urllib.parse import quote

from dsv2.environment import ExecutionEnvironment
from dsv2.errors import Dsv2Error
from dsv2.jobs.handle import Trigger
from dsv2.local import LocalRuntime
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.short_repr import shorten
from dsv2.sinks import DriverSink, Sink
from dsv2.testing.clock import ManualClock

AWKWARD_TEXTS: tuple[str, ...] = (
    *("", " ", " padded ", "\t", "a\nb", "a\r\nb", "\n", "\0", "a\0b", "\x1b[0m\x7f", "\u2028", "\ufeffmark"),
    *("null", "NULL", "None", "NaN", "0", "007", "-0", "1e3", "true", "2024-02-30", "{}", "[1", "%s %(a)s", "$1"),
    *('"', '"quoted"', "it's", "''", "a,b;c|d", "back\\slash", "\\N", "\\.", "<a>&amp;", "../up", "a/b"),
    *("é", "e\u0301", "ß", "日本語", "😀", "\U0010ffff", "x" * 70_000),
)
"""Different texts that a connector may confuse or damage."""

_SHOWN = 5


class ConnectorTestSuite(ABC):
    """The base class of the suites. Derive a class whose name begins with ``Test`` from one, and run it with pytest.

    pytest creates an object for each test: use its fixtures, or ``setup_method``, to prepare an empty system.

    Attributes:
        awkward_texts: The texts that the connector must keep unchanged. Leave out those that the system cannot store.
        secrets: The secrets in the options of the connector, which nothing may show.
    """

    awkward_texts: Sequence[str] = AWKWARD_TEXTS
    secrets: Collection[str] = ()

    def test_secrets_are_hidden(self) -> None:
        """No secret in plans, checkpoints, logs and errors."""
        if not self.secrets:
            raise SkipTest("The suite has no secrets.")
        root, log = logging.root, BufferingHandler(1 << 20)
        level = root.level
        root.addHandler(log)
        root.setLevel(logging.DEBUG)
        try:
            shown = list(self._shown())
        finally:
            root.setLevel(level)
            root.removeHandler(log)
        shown += [(f"The log of {record.name}", record.getMessage()) for record in log.buffer]
        for what, text in shown:
            for secret in {*self.secrets, *(quote(secret, safe="") for secret in self.secrets)}:
                before, found, after = text.partition(secret)
                if found:
                    fail(f"{what} shows the secret {secret!r}: ...{before[-60:]}{found}{after[:20]}...")

    def _shown(self) -> Iterator[tuple[str, str]]:
        """All that a user may see, each with its description."""
        with TemporaryDirectory() as folder:
            env = ExecutionEnvironment.get_instance("local")
            self._build(env)
            yield "explain()", str(env.explain())
            connector = self._connector()
            yield "repr()", repr(connector)
            if isinstance(connector, Sink):
                yield "describe_target()", connector.describe_target()
            run_job(self._build, folder)
            for file in Path(folder).rglob("*"):
                if file.is_file():
                    yield f"The file {file.name} of the checkpoint", file.read_bytes().decode("utf-8", "replace")
        for what, run in self._failures():
            with suppress(SkipTest):
                yield f"The error of {what}", "".join(traceback.format_exception(failure_of(run, what)))

    @abstractmethod
    def _connector(self) -> object:
        """Return the source or sink."""

    @abstractmethod
    def _build(self, env: ExecutionEnvironment) -> object:
        """Build a job with the connector."""

    @abstractmethod
    def _failures(self) -> Iterable[tuple[str, Callable[[], object]]]:
        """Return jobs that fail, each with the reason."""


class Ledger(DriverSink[Any]):
    """Keeps the records of each micro-batch, also if the job is killed and restarted."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def write_batch(self, batches: Sequence[RecordBatch[Any]], batch_id: int) -> None:
        self.batches[batch_id] = [record for batch in batches for record in batch.records]

    @property
    def records(self) -> list[Any]:
        """The records of all micro-batches, in order."""
        return [record for _, records in sorted(self.batches.items()) for record in records]


def run_job(
    build: Callable[[ExecutionEnvironment], object], folder: str = "", *, parallelism: int = 2, **options: Any
) -> None:
    """Run a job to the end of the data that exists. Its source has the uid ``source``.

    Args:
        build: Builds the job.
        folder: The checkpoint, from which it continues. Empty: a new one.
        parallelism: The number of readers.
        options: ``skip``: The records to skip. Others are those of the runtime.
    """
    skips = {"source": options.pop("skip", ())}
    clock = ManualClock(step=timedelta(milliseconds=1))
    settings = {"clock": clock, "batches": [1000], "checks": False, "durable": False, **options}
    env = ExecutionEnvironment.get_instance(LocalRuntime(**settings))
    env.set_parallelism(parallelism)
    build(env)
    with TemporaryDirectory() as unused:
        where = folder or unused
        env.execute("job", checkpoint_location=where, trigger=Trigger.available_now(), skip_records=skips)


def failure_of(run: Callable[[], object], what: str) -> Dsv2Error:
    """Return the error with which ``run`` fails because of ``what``."""
    try:
        run()
    except Dsv2Error as error:
        return error
    return fail(f"The job must fail because of {what}, but it ended without an error.")


def fail(mistake: str) -> NoReturn:
    """Fail the test."""
    __tracebackhide__ = True  # of pytest
    raise AssertionError(mistake)


def check_same(expected: Iterable[str], found: Iterable[str], when: str, *, once: bool = True) -> None:
    """Check that these texts have been read or written. ``once``: Whether they may not be repeated."""
    wanted, got = Counter(expected), Counter(found)
    repeated = Counter({text: count for text, count in (got - wanted).items() if text in wanted and once})
    unknown = Counter({text: count for text, count in got.items() if text not in wanted})
    kinds = {"missing": wanted - got, "repeated": repeated, "different from all that were added": unknown}
    shown = {kind: ", ".join(map(shorten, list(texts)[:_SHOWN])) for kind, texts in kinds.items()}
    if mistakes := [f"{texts.total()} {kind}: {shown[kind]}" for kind, texts in kinds.items() if texts]:
        fail(f"{when}, records are {', and '.join(mistakes)}.")
