"""The oracle of the hot-topics example: manual cases, its own slow variants, and wrong answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.hot_topics import HotTopic
from examples.tweets import Tweet
from tests.oracles.hot_topics import expected_events, objections, possible_events
from tests.profiles import examples


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


def test_threshold_and_window_count() -> None:
    tweets = about("a", 0, 1, 2, 3)
    assert expected_events(tweets, threshold=3, window=10) == hot("a", (0, 4))
    assert expected_events(tweets, threshold=2, window=1) == hot("a", (0, 3), (1, 3))
    assert expected_events(tweets, threshold=4, window=10) == []


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


# --- Several extractors, by enumeration ------------------------------------------------------------------------------


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


# --- Several extractors, by bounds -----------------------------------------------------------------------------------


@st.composite
def few_channels(draw: st.DrawFn) -> list[list[Tweet]]:
    channels: dict[int, list[Tweet]] = defaultdict(list)
    for _ in range(draw(st.integers(0, 9))):
        tweet = draw(st.builds(Tweet, st.sampled_from("aaab"), st.integers(0, 30)))
        channels[draw(st.integers(0, 2))].append(tweet)
    return [channels[index] for index in range(3)]


@examples(25)
@given(few_channels(), st.integers(0, 3), st.integers(0, 12))
def test_possible_answers_have_no_objections(channels: list[list[Tweet]], threshold: int, window: int) -> None:
    others = min(possible_events(channels, "b", threshold, window), key=repr)
    for answer in possible_events(channels, "a", threshold, window):
        assert objections(channels, [*answer, *others], threshold, window) == []


# Threshold 2, window 10. The first channel is ahead of the second one.
AHEAD = about("a", 0, 1, 2, 3, 20, 21)
BEHIND = about("a", 0, 0, 4)
ALL_HELD = hot("a", *((0, count) for count in range(3, 9)))  # BEHIND is third from last, and stays
REFUSED = {
    "1: begins above threshold + 1": (hot("a", (0, 4)), "the first event counts 4, not 3"),
    "1: leaps": (hot("a", (0, 3), (0, 5)), "the count grows by more than one"),
    "1: not hot": (hot("a", (0, 3), (0, 2)), "counts no more than 2"),
    "2: more events than tweets": (hot("a", *[(0, 3)] * 8), "8 events for 9 tweets"),
    "3: no such tweet": (hot("a", (7, 3)), "no tweet was posted then"),
    "3: not so many from then on": (hot("a", (4, 3), (4, 4)), "more tweets than were posted from then on"),
    "4: dropped, and yet more": (hot("a", (0, 3), (4, 4)), "tweets were dropped, yet the count grows"),
    "4: dropped by nothing": (hot("a", (20, 3), (21, 3)), "no watermark was new enough"),
    "5: falls back to the one tweet posted then": (
        hot("a", (2, 3), (3, 3), (2, 3)),
        "falls to 2 2 times, with 1 tweets posted then",
    ),
    "unknown topic": (hot("z", (0, 3)), "z: nobody wrote about it"),
}


@pytest.mark.parametrize(("events", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_answers_are_refused(events: list[HotTopic], why: str) -> None:
    found = objections([AHEAD, BEHIND], events, threshold=2, window=10)
    assert any(why in objection for objection in found), found


def test_manual_upper_bound() -> None:
    """At watermark 3 the detector may hold 0 to 3, then 20, whose watermark follows it, and all of the second channel.
    When 21 arrives, watermark 20 has dropped 0 to 3."""
    assert objections([AHEAD, BEHIND], ALL_HELD, threshold=2, window=10) == []
    nine = [*ALL_HELD, HotTopic("a", 0, 9)]
    assert "a: HotTopic(topic='a', at=0, count=9) counts more than the 8 that can be held" in objections(
        [AHEAD, BEHIND], nine, threshold=2, window=10
    )


def test_manual_lower_bound() -> None:
    """The only watermark, 12, may drop tweets up to time 1. The five tweets form at most two groups: 5 - 2 * 2."""
    channels = [about("a", 0, 0, 1), about("a", 1, 0) + about("b", 12)]
    assert objections(channels, [], threshold=2, window=10) == ["a: 0 events, where there are at least 1"]
    assert () not in possible_events(channels, "a", threshold=2, window=10)


def test_bounds_hold_with_one_channel() -> None:
    """With one channel the bounds apply as well, although the exact answer is known."""
    tweets = about("a", *range(0, 60, 3)) + about("b", 61) + about("a", *range(60, 90, 2))
    events = expected_events(tweets, threshold=2, window=10)
    assert len(events) > 20
    assert objections([tweets], events, threshold=2, window=10) == []
    assert objections([tweets], hot("a", *((0, count) for count in range(3, 20))), threshold=2, window=10) != []
