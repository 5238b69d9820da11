"""The oracle of the hot-topics example: manual cases, and its own slow variants."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.hot_topics import HotTopic
from examples.tweets import Tweet
from tests.oracles.hot_topics import expected_events, possible_events


def about(topic: str, *times: int) -> list[Tweet]:
    return [Tweet(topic, time) for time in times]


def hot(topic: str, *at_and_counts: tuple[int, int]) -> list[HotTopic]:
    return [HotTopic(topic, at, count) for at, count in at_and_counts]


# --- One extractor ---------------------------------------------------------------------------------------------------

# All with threshold 1 and window 10.
BY_HAND = {
    "nothing": ([], []),
    "one tweet is not more than one": (about("a", 0), []),
    "held at 5: 0, 5; at 11: 0, 5, 11": (about("a", 0, 5, 11), hot("a", (0, 2), (0, 3))),
    "a tweet's own watermark comes behind it": (about("a", 0, 100), hot("a", (0, 2))),
    "the watermark 100 drops 0": (about("a", 0, 100, 100), hot("a", (0, 2), (100, 2))),
    "a tweet as old as the window is held": (about("a", 0) + about("b", 10) + about("a", 3), hot("a", (0, 2))),
    "a millisecond older is not": (about("a", 0) + about("b", 11) + about("a", 3), []),
    "late tweets stay until the next watermark": (about("a", 100, 0, 1), hot("a", (0, 2), (0, 3))),
    "which another topic may bring": (about("a", 100, 0) + about("b", 101) + about("a", 2), hot("a", (0, 2), (2, 2))),
    "an equal posting time brings none": (about("a", 100, 0, 100, 1), hot("a", (0, 2), (0, 3), (0, 4))),
    "topics are apart": (
        [Tweet("a", 0), Tweet("b", 1), Tweet("a", 2), Tweet("b", 3)],
        [HotTopic("a", 0, 2), HotTopic("b", 1, 2)],
    ),
    "before 1970 there are no watermarks": (about("a", -90, -50, -1), hot("a", (-90, 2), (-90, 3))),
}


@pytest.mark.parametrize(("tweets", "events"), BY_HAND.values(), ids=BY_HAND.keys())
def test_manual_cases_of_one_extractor(tweets: list[Tweet], events: list[HotTopic]) -> None:
    assert expected_events(tweets, threshold=1, window=10) == events


def by_definition(tweets: Sequence[Tweet], threshold: int, window: int) -> list[HotTopic]:
    """The same by definition: a later tweet still counts a tweet unless a watermark between them dropped it."""
    watermark_at = [
        tweet.posting_time if tweet.posting_time > max([-1, *(t.posting_time for t in tweets[:place])]) else None
        for place, tweet in enumerate(tweets)
    ]
    events = []
    for place, tweet in enumerate(tweets):
        held = [
            earlier.posting_time
            for start, earlier in enumerate(tweets[: place + 1])
            if earlier.topic == tweet.topic
            and all(w is None or w - earlier.posting_time <= window for w in watermark_at[start:place])
        ]
        if len(held) > threshold:
            events.append(HotTopic(tweet.topic, min(held), len(held)))
    return events


TWEETS = st.lists(st.builds(Tweet, st.sampled_from("ab"), st.integers(-2, 30)), max_size=30)


@given(TWEETS, st.integers(0, 4), st.integers(0, 12))
def test_one_extractor_matches_the_definition(tweets: list[Tweet], threshold: int, window: int) -> None:
    assert expected_events(tweets, threshold, window) == by_definition(tweets, threshold, window)


# --- Several extractors ----------------------------------------------------------------------------------------------


def test_lagging_channel_is_dropped_or_held() -> None:
    """The watermark 100 drops a@0 if it comes later. Otherwise a@0 is held together with a@101."""
    channels = [about("a", 0), about("b", 100) + about("a", 101)]
    assert possible_events(channels, "a", threshold=1, window=10) == {(), (HotTopic("a", 0, 2),)}


def test_channels_keep_their_order() -> None:
    channels = [about("a", 0, 5), about("b", 3)]
    assert possible_events(channels, "a", threshold=1, window=10) == {(HotTopic("a", 0, 2),)}
    assert possible_events(channels, "b", threshold=1, window=10) == {()}


def test_watermark_falls_when_its_channel_ends() -> None:
    """At watermark 100 a detector drops the first a@0. At 50, after the end of the first channel, it drops the second
    one."""
    channels = [about("b", 100), about("b", 50) + about("a", 0, 0, 0)]
    assert () in possible_events(channels, "a", threshold=1, window=10)


@given(TWEETS.filter(lambda tweets: len(tweets) <= 8), st.integers(0, 2), st.integers(0, 12))
def test_one_channel_has_one_answer(tweets: list[Tweet], threshold: int, window: int) -> None:
    events = expected_events(tweets, threshold, window)
    for topic in "ab":
        only = tuple(event for event in events if event.topic == topic)
        assert possible_events([tweets], topic, threshold, window) == {only}
