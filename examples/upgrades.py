"""Upgrades hot topics three times without losing anything: each release starts from a savepoint of the one before.

The detector has 2 subtasks in the first release, then 3, 1 and 8. It keeps the posting times of each topic in a field,
which is named in ``keyed_fields``, so each topic follows its key to another subtask. The peak of each topic is a value
in a state. Its class gains a field with a default in the third release, and stored peaks get that default.

``python -m examples.upgrades`` runs it in this process. On Spark, a release also needs a new ``checkpoint_location``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import make_dataclass, replace
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    Dsv2Error,
    ExecutionEnvironment,
    JobHandle,
    OneInputStreamProcessFunction,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.savepoint import Savepoint
from dsv2.streams import ConfiguredStream
from dsv2.testing import Stop, TestSource
from examples.console import format_table
from examples.hot_topics import HotTopic, build
from examples.tweets import Tweet, TweetGenerator

__all__ = ("RELEASES", "THRESHOLD", "TWEETS", "WINDOW", "KeepPeaks", "KeepPeaksAndCount", "Release", "main", "upgrade")

TWEETS = tuple(map(TweetGenerator(topics=20, interval=1000), range(2000)))
THRESHOLD = 15  # tweets
WINDOW = 60_000  # milliseconds


def _peak(*fields: tuple[str, type] | tuple[str, type, int]) -> Any:
    """Return a version of the class ``records.Peak``. Releases have one each, but this program has both."""
    made = make_dataclass("Peak", fields, frozen=True)
    made.__module__ = "records"
    return made


class KeepPeaks(OneInputStreamProcessFunction[HotTopic, HotTopic]):
    """Forwards events, and keeps the largest number of tweets of each topic."""

    def __init__(self, kind: Any) -> None:
        self._new = kind
        self._peak = StateDeclarations.value_state("peak", kind)

    def uses_states(self) -> list[StateDeclaration]:
        return [self._peak]

    def process_record(self, record: HotTopic, output: Collector[HotTopic], ctx: PartitionedContext[HotTopic]) -> None:
        peak = ctx.state_manager.get_state(self._peak)
        peak.update(self._after(peak.value() or self._new(0), record))
        output.collect(record)

    def _after(self, peak: Any, event: HotTopic) -> Any:
        return replace(peak, tweets=max(peak.tweets, event.count))


class KeepPeaksAndCount(KeepPeaks):
    """Also counts the events of each topic."""

    def _after(self, peak: Any, event: HotTopic) -> Any:
        return replace(super()._after(peak, event), events=peak.events + 1)


class Release(NamedTuple):
    """A release of the program.

    Attributes:
        detectors: The parallelism of the detector.
        keep: Keeps the peaks.
        tweets: The number of tweets that have been read when it is stopped.
    """

    detectors: int
    keep: KeepPeaks
    tweets: int


_FIRST = KeepPeaks(_peak(("tweets", int)))
_THIRD = KeepPeaksAndCount(_peak(("tweets", int), ("events", int, 0)))
RELEASES = (Release(2, _FIRST, 500), Release(3, _FIRST, 1000), Release(1, _THIRD, 1500), Release(8, _THIRD, 2000))


def upgrade(
    folder: Path,
    new_environment: Callable[[], ExecutionEnvironment],
    start: Callable[[ExecutionEnvironment, Path | None], JobHandle],
) -> list[list[HotTopic]]:
    """Run one release after the other, and return the events of each. The savepoints are in ``folder``.

    Args:
        folder: The folder for the savepoints ``1``, ``2``, ``3`` and ``4``.
        new_environment: Creates an environment.
        start: Starts the job, from a savepoint if there is one.
    """
    events = []
    savepoint: Path | None = None
    for number, release in enumerate(RELEASES, start=1):
        env = new_environment()
        sink = CollectSink[HotTopic]()
        _program(env, release).to_sink(sink).with_uid("events")
        job = start(env, savepoint)
        job.await_termination()
        if (error := job.exception()) is not None:
            raise error
        savepoint = Path(job.stop_with_savepoint(folder / str(number)))
        events.append(sink.results)
    return events


def _program(env: ExecutionEnvironment, release: Release) -> ConfiguredStream[HotTopic]:
    items: list[Tweet | Stop] = [*TWEETS[: release.tweets], Stop(), *TWEETS[release.tweets :]]
    env.set_parallelism(release.detectors)
    hot = build(env.from_source(TestSource[Tweet](items)), threshold=THRESHOLD, window=WINDOW)
    return hot.key_by(_topic_of).process(release.keep).with_uid("peaks")


def _topic_of(event: HotTopic) -> str:
    return event.topic


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    argparse.ArgumentParser(prog="python -m examples.upgrades", description=__doc__).parse_args(arguments)
    try:
        with TemporaryDirectory() as folder:
            events = upgrade(Path(folder), lambda: ExecutionEnvironment.get_instance(runtime="local"), _start)
            peaks = Savepoint.open(Path(folder) / str(len(RELEASES))).state("peaks", "peak").to_arrow().to_pylist()
    except Dsv2Error as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    rows = [
        (number, release.detectors, release.tweets, len(found))
        for number, (release, found) in enumerate(zip(RELEASES, events, strict=True), start=1)
    ]
    print("Four releases of one job:", "", format_table(["release", "detectors", "tweets", "events"], rows), sep="\n")
    table = [
        (row["key"], row["value"]["tweets"], row["value"]["events"]) for row in sorted(peaks, key=itemgetter("key"))
    ]
    print("", "The state of the last one:", "", format_table(["topic", "peak", "new events"], table), sep="\n")
    return 0


def _start(env: ExecutionEnvironment, savepoint: Path | None) -> JobHandle:
    return env.execute_async("hot topics", savepoint=savepoint)


if __name__ == "__main__":
    sys.exit(main())
