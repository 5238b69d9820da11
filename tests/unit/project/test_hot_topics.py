"""The hot-topics example on the local runtime, compared with the oracle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.jobs import JobProgress
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from examples.hot_topics import HotTopic, build, main
from examples.tweets import Tweet, TweetGenerator
from tests.oracles.hot_topics import expected_events, possible_events
from tests.profiles import examples

GENERATED = [*map(TweetGenerator(topics=20, interval=1000), range(2000))]

DETECTORS = pytest.mark.parametrize("lazy", [False, True], ids=["eager", "lazy"])


def run(
    tweets: Sequence[Tweet],
    threshold: int,
    window: int,
    *,
    lazy: bool,
    extractors: int = 1,
    detectors: int = 1,
    runtime: LocalRuntime | None = None,
) -> tuple[list[HotTopic], JobProgress]:
    env = ExecutionEnvironment.get_instance(runtime or LocalRuntime())
    env.set_parallelism(detectors)
    sink = CollectSink[HotTopic]()
    stream = env.from_collection(tweets)
    build(stream, threshold=threshold, window=window, lazy=lazy, extractors=extractors).to_sink(sink)
    result = env.execute()
    return sink.results, result.progress


def by_topic(events: Iterable[HotTopic]) -> dict[str, list[HotTopic]]:
    groups: dict[str, list[HotTopic]] = defaultdict(list)
    for event in events:
        groups[event.topic].append(event)
    return groups


@DETECTORS
def test_one_extractor_gives_the_answer(lazy: bool) -> None:
    expected = expected_events(GENERATED, threshold=15, window=60_000)
    assert len(expected) > 50
    events, progress = run(GENERATED, 15, 60_000, lazy=lazy)
    assert events == expected
    assert progress.operators["extractor"].counters == {"watermarks": 2000}


@DETECTORS
@pytest.mark.parametrize("batches", [(), (1, 7, 400)])
@pytest.mark.parametrize("detectors", [2, 5])
def test_any_number_of_detectors_and_batches(lazy: bool, batches: tuple[int, ...], detectors: int) -> None:
    runtime = LocalRuntime(seed=detectors, batches=batches)
    events, _ = run(GENERATED, 15, 60_000, lazy=lazy, detectors=detectors, runtime=runtime)
    assert by_topic(events) == by_topic(expected_events(GENERATED, 15, 60_000))


TWEETS = st.lists(st.builds(Tweet, st.sampled_from("aab"), st.integers(-2, 30)), min_size=1, max_size=8)


@examples(25)
@given(TWEETS, st.integers(0, 2), st.integers(0, 12), st.integers(2, 3), st.integers())
def test_several_extractors_give_a_possible_answer(
    tweets: list[Tweet], threshold: int, window: int, extractors: int, seed: int
) -> None:
    runtime = LocalRuntime(seed=seed)
    events, _ = run(tweets, threshold, window, lazy=False, extractors=extractors, detectors=2, runtime=runtime)
    channels = [tweets[index::extractors] for index in range(extractors)]
    found = by_topic(events)
    for topic in {tweet.topic for tweet in tweets}:
        assert tuple(found[topic]) in possible_events(channels, topic, threshold, window)


def test_program_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--mode", "local", "--tweets", "20000"]) == 0
    output = capsys.readouterr().out
    expected = expected_events(map(TweetGenerator(), range(20_000)), threshold=100, window=300_000)
    assert "Hot: more than 100 tweets about one topic within 5 minutes" in output
    assert f"20,000 records read, 9,000 watermarks, {len(expected):,} hot events" in output


@pytest.mark.parametrize("wrong", [["--threshold", "-1"], ["--window", "0"], ["--window", "nan"], ["--window", "inf"]])
def test_invalid_options_are_refused(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--mode", "local", "--tweets", "10", *wrong])
    assert "--threshold must be at least 0, and --window must be greater than 0" in capsys.readouterr().err


def test_folders_with_other_files_are_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "diary.txt").write_text("mine")
    assert main(["--work-dir", str(tmp_path)]) == 1
    assert f"{tmp_path}/events contains other files than an earlier run" in capsys.readouterr().err
    assert (tmp_path / "events" / "diary.txt").read_text() == "mine"
    (tmp_path / "file").touch()
    assert main(["--work-dir", str(tmp_path / "new"), "--output", str(tmp_path / "file")]) == 1
    assert "NotADirectoryError" in capsys.readouterr().err
