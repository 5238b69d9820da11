"""Possible answers of the hot-topics example, computed from its tweets without running it.

The rules of the example: an extractor forwards each tweet. If its posting time is newer than all earlier ones (-1 at
first), the extractor sends that time after it as a watermark. A detector combines the watermarks of all extractors by
MAX. When the combined value changes, it drops every tweet posted more than ``window`` earlier. A tweet with which it
holds more than ``threshold`` of one topic gives an event: the topic, the oldest posting time held and the number held.

* One extractor: ``expected_events`` gives *the* answer.
* Several: their channels keep their order, but interleave in any way. ``possible_events`` tries all interleavings,
  which only works for a handful of tweets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from examples.hot_topics import HotTopic
from examples.tweets import Tweet

NO_WATERMARK = -1


def expected_events(tweets: Iterable[Tweet], threshold: int, window: int) -> list[HotTopic]:
    """The events, in order, when one extractor reads ``tweets``. ``window`` is in milliseconds.

    The order is that of the detector if there is one, and the order within each topic if there are several.

    With one channel the watermark only grows. When the next tweet of a topic arrives, the topic has lost what the
    newest watermark drops, provided that a watermark came since the topic's last tweet (a tweet is not dropped on
    arrival).
    """
    newest = NO_WATERMARK
    watermarks = 0
    held: dict[str, list[int]] = defaultdict(list)  # sorted
    watermarks_at_last_tweet: dict[str, int] = {}
    events = []
    for topic, posting_time in tweets:
        times = held[topic]
        if watermarks_at_last_tweet.get(topic) != watermarks:
            del times[: bisect_left(times, newest - window)]
        insort(times, posting_time)
        watermarks_at_last_tweet[topic] = watermarks
        if len(times) > threshold:
            events.append(HotTopic(topic, times[0], len(times)))
        if posting_time > newest:
            newest = posting_time
            watermarks += 1
    return events


class _State(NamedTuple):
    """The state of a detector: elements taken from each channel, last watermark, tweets held, events emitted."""

    taken: tuple[int, ...]
    told: int | None
    held: tuple[int, ...]
    events: tuple[HotTopic, ...]


def possible_events(
    channels: Sequence[Sequence[Tweet]], topic: str, threshold: int, window: int
) -> set[tuple[HotTopic, ...]]:
    """Every answer about ``topic`` that some interleaving of the extractors' channels gives.

    The number of interleavings grows exponentially with the tweets: a dozen are slow. A channel that has ended loses
    its watermark, because an ended source no longer contributes to the combined value.
    """
    elements = [_channel_elements(channel) for channel in channels]
    answers = set()
    start = _State((0,) * len(channels), None, (), ())
    seen, waiting = {start}, [start]
    while waiting:
        state = waiting.pop()
        successors = [
            _after(state, channel, elements, topic, threshold, window)
            for channel in range(len(channels))
            if state.taken[channel] < len(elements[channel])
        ]
        if not successors:
            answers.add(state.events)
        waiting += set(successors) - seen
        seen.update(successors)
    return answers


def _channel_elements(tweets: Iterable[Tweet]) -> list[Tweet | int | None]:
    """Output of an extractor: tweets, watermarks, and None for the end."""
    elements: list[Tweet | int | None] = []
    newest = NO_WATERMARK
    for tweet in tweets:
        elements.append(tweet)
        if tweet.posting_time > newest:
            newest = tweet.posting_time
            elements.append(newest)
    return [*elements, None]


def _after(
    state: _State,
    channel: int,
    elements: Sequence[Sequence[Tweet | int | None]],
    topic: str,
    threshold: int,
    window: int,
) -> _State:
    """The state after the next element of ``channel``."""
    taken = tuple(count + (index == channel) for index, count in enumerate(state.taken))
    element = elements[channel][state.taken[channel]]
    if isinstance(element, Tweet):
        if element.topic != topic:
            return state._replace(taken=taken)
        held = tuple(sorted((*state.held, element.posting_time)))
        event = (HotTopic(topic, held[0], len(held)),) if len(held) > threshold else ()
        return state._replace(taken=taken, held=held, events=state.events + event)
    said = [
        max(values)
        for count, sent in zip(taken, elements, strict=True)
        if count < len(sent) and (values := [value for value in sent[:count] if isinstance(value, int)])
    ]
    newest = max(said, default=None)
    if newest is None or newest == state.told:
        return state._replace(taken=taken)
    held = tuple(time for time in state.held if time >= newest - window)
    return state._replace(taken=taken, told=newest, held=held)
