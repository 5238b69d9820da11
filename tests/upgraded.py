"""The check of the example that upgrades hot topics, on any runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from dsv2.savepoint import Savepoint
from examples.hot_topics import HotTopic
from examples.upgrades import RELEASES, THRESHOLD, TWEETS, WINDOW
from tests.oracles.hot_topics import expected_events


def check_events(events: Sequence[Sequence[HotTopic]], savepoints: Path) -> None:
    """Check the events of all releases, and the state in the last of ``savepoints``."""
    expected = [expected_events(TWEETS[: release.tweets], THRESHOLD, WINDOW) for release in RELEASES]
    lengths = [0, *map(len, expected)]
    for number, found in enumerate(events):
        assert len(found) > 50
        assert by_topic(found) == by_topic(expected[-1][lengths[number] : lengths[number + 1]])
    since_third = Counter(event.topic for event in expected[-1][lengths[2] :])
    peaks = Savepoint.open(savepoints / str(len(RELEASES))).state("peaks", "peak").to_arrow()
    assert dict(zip(peaks["key"].to_pylist(), peaks["value"].to_pylist(), strict=True)) == {
        topic: {"tweets": max(event.count for event in of_topic), "events": since_third[topic]}
        for topic, of_topic in by_topic(expected[-1]).items()
    }


def by_topic(events: Sequence[HotTopic]) -> dict[str, list[HotTopic]]:
    return {topic: [event for event in events if event.topic == topic] for topic in {event.topic for event in events}}
