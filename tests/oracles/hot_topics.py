"""Possible answers of the hot-topics example, computed from its tweets without running it.

The rules of the example: an extractor forwards each tweet. If its posting time is newer than all earlier ones (-1 at
first), the extractor sends that time after it as a watermark. A detector combines the watermarks of all extractors by
MAX. When the combined value changes, it drops every tweet posted more than ``window`` earlier. A tweet with which it
holds more than ``threshold`` of one topic gives an event: the topic, the oldest posting time held and the number held.

* One extractor: ``expected_events`` gives *the* answer.
* Several: their channels keep their order, but interleave in any way. ``possible_events`` tries all interleavings,
  which only works for a handful of tweets. ``objections`` checks any answer against bounds that hold for all of them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
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


# --- Several extractors, a handful of tweets -------------------------------------------------------------------------


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


# --- Several extractors, any number of tweets ------------------------------------------------------------------------


def objections(
    channels: Sequence[Sequence[Tweet]], events: Iterable[HotTopic], threshold: int, window: int
) -> list[str]:
    """Reasons why ``events`` cannot be the answer when extractor ``i`` reads ``channels[i]``, empty if there are none.

    The events of each topic must be in the order in which they were emitted. All rules below hold for every
    interleaving of the channels. An objection is therefore always right, but no objection proves nothing.

    Let ``N`` be the tweets of one topic, in the order in which its detector receives them. It holds ``h(i)`` of them
    after the i-th, where ``h(i) <= h(i - 1) + 1``, and there is an event exactly if ``h(i) > threshold``.

    1. *Steps.* The first event counts ``threshold + 1``, because the number held grows one by one from 0. A later one
       counts at most one more than the previous one. If tweets without an event lie between them, fewer than
       ``threshold + 1`` were held in between, and it counts ``threshold + 1`` itself.
    2. *Number.* The first ``threshold`` tweets give no event, so there are at most ``len(N) - threshold``.
    3. *Oldest.* ``at`` is the posting time of one of the tweets, and ``count`` at most the number of tweets that are
       not older.
    4. *Where ``at`` rises*, all tweets posted at the previous ``at`` were dropped: some watermark is greater than it by
       more than ``window``, and the count is not greater than before (one more tweet, at least one less; or see 1).
    5. *Where ``at`` falls*, and at the first event, a tweet posted at the new ``at`` arrived since the previous event.
       These are different tweets, so for one posting time it happens at most as often as there are tweets posted then.
    6. *Reach.* See ``_reach``: a detector cannot hold tweets that its watermarks have dropped.
    7. *Silence.* See ``_fewest_events``: the number of watermarks that can drop tweets is limited.
    """
    tweets_of: dict[str, list[Tweet]] = defaultdict(list)
    for channel in channels:
        for tweet in channel:
            tweets_of[tweet.topic].append(tweet)
    events_of: dict[str, list[HotTopic]] = defaultdict(list)
    for event in events:
        events_of[event.topic].append(event)
    watermarks = [_watermarks(channel) for channel in channels]
    found = [f"{topic}: nobody wrote about it" for topic in sorted(events_of.keys() - tweets_of.keys())]
    for topic, tweets in tweets_of.items():
        times = sorted(tweet.posting_time for tweet in tweets)
        for objection in (
            *_to_events(events_of[topic], times, watermarks, threshold, window),
            *_to_counts(events_of[topic], _reach(channels, watermarks, topic, window)),
            *_to_silence(events_of[topic], _fewest_events(times, watermarks, threshold, window)),
        ):
            found.append(f"{topic}: {objection}")
    return found


def _to_events(
    events: Sequence[HotTopic], times: Sequence[int], watermarks: Sequence[Sequence[int]], threshold: int, window: int
) -> Iterable[str]:
    """Rules 1 to 5. ``times``: the topic's posting times, sorted."""
    if not events:
        return
    newest = max((sent[-1] for sent in watermarks if sent), default=NO_WATERMARK)
    posted_at = Counter(times)
    if events[0].count != threshold + 1:
        yield f"the first event counts {events[0].count}, not {threshold + 1}"
    if len(events) > max(0, len(times) - threshold):
        yield f"{len(events)} events for {len(times)} tweets, of which the first {threshold} give none"
    for event in events:
        if event.count <= threshold:
            yield f"{event} counts no more than {threshold}"
        if event.at not in posted_at:
            yield f"{event}: no tweet was posted then"
        if event.count > len(times) - bisect_left(times, event.at):
            yield f"{event} counts more tweets than were posted from then on"
    for before, event in pairwise(events):
        if event.count > before.count + 1:
            yield f"from {before} to {event} the count grows by more than one"
        if event.at > before.at:
            if newest - before.at <= window:
                yield f"from {before} to {event} tweets were dropped, for which no watermark was new enough"
            if event.count > before.count:
                yield f"from {before} to {event} tweets were dropped, yet the count grows"
    fallen = Counter(
        event.at
        for before, event in zip([None, *events], events, strict=False)
        if before is None or event.at < before.at
    )
    for at, times_fallen in fallen.items():
        if times_fallen > posted_at[at]:
            yield f"the oldest posting time falls to {at} {times_fallen} times, with {posted_at[at]} tweets posted then"


def _to_counts(events: Sequence[HotTopic], reach: int) -> Iterable[str]:
    """Rule 6."""
    return (f"{event} counts more than the {reach} that can be held" for event in events if event.count > reach)


def _to_silence(events: Sequence[HotTopic], fewest: int) -> Iterable[str]:
    """Rule 7."""
    return [f"{len(events)} events, where there are at least {fewest}"] if len(events) < fewest else []


def _watermarks(tweets: Iterable[Tweet]) -> list[int]:
    """The increasing watermarks of an extractor that reads ``tweets``."""
    return [element for element in _channel_elements(tweets) if isinstance(element, int)]


def _reach(channels: Sequence[Sequence[Tweet]], watermarks: Sequence[Sequence[int]], topic: str, window: int) -> int:
    """The maximum number of tweets about ``topic`` that a detector can hold at once.

    At any moment, let ``w`` be the maximum value that the detector has received so far, sent by a channel ``c``. For
    every tweet ``x`` let ``m(x)`` be the last watermark that its channel sent before it.

    * No tweet held has ``m(x) > w``: that watermark came before ``x``, so the detector received a value at least as
      great, because the combined value is the maximum of the channels that have not ended.
    * A tweet of ``c`` with ``m(x) < w`` came before ``w``, so it is held only if posted at ``w - window`` or later.

    So the number held is at most the number of the topic's tweets that both rules leave. The result is the maximum of
    these numbers for all ``c`` and ``w``. (Other channels may lag behind: their tweets can all come after ``w``.)

    Between two tweets of the topic in ``c``, only a greater ``w`` can improve the result. A smaller one changes only
    the tweets that ``w - window`` drops and that ``m(x) == w`` protects. It is therefore sufficient to try, for each
    tweet ``x`` of ``c``, ``w = m(x)`` and the maximum ``w`` that does not drop ``x``, and the overall maximum.
    """
    # For each channel the tweets of the topic in order, as (m(x), posting time). m never decreases within a channel.
    marked: list[list[tuple[int, int]]] = []
    for channel in channels:
        newest, of_topic = NO_WATERMARK, []
        for tweet in channel:
            if tweet.topic == topic:
                of_topic.append((newest, tweet.posting_time))
            newest = max(newest, tweet.posting_time)
        marked.append(of_topic)

    def up_to(channel: int, w: int) -> int:
        return bisect_right(marked[channel], w, key=lambda tweet: tweet[0])

    most = sum(up_to(channel, NO_WATERMARK) for channel in range(len(channels)))  # before the first watermark
    for c, sent in enumerate(watermarks):
        if not sent:
            continue
        before_dropped = (bisect_right(sent, time + window) - 1 for _, time in marked[c])
        candidates = {sent[place] for place in before_dropped if place >= 0}
        candidates |= {mark for mark, _ in marked[c] if mark != NO_WATERMARK} | {sent[-1]}
        earlier: list[int] = []  # posting times of the tweets of c with m(x) < w, sorted
        for w in sorted(candidates):
            first_protected = bisect_left(marked[c], w, key=lambda tweet: tweet[0])
            for _, time in marked[c][len(earlier) : first_protected]:
                insort(earlier, time)
            dropped = bisect_left(earlier, w - window)
            most = max(most, sum(up_to(channel, w) for channel in range(len(channels))) - dropped)
    return most


def _fewest_events(times: Sequence[int], watermarks: Sequence[Sequence[int]], threshold: int, window: int) -> int:
    """The minimum number of events of a topic with tweets at ``times`` (sorted).

    Consider the tweets posted at ``s`` or later. Only a watermark greater than ``s + window`` drops one of them. A
    detector receives such a value at most once for each one that a channel sent. It receives one more for each channel
    that ends while another channel continues whose value then counts again. These drops divide the tweets into groups,
    within which nothing is dropped: a group gives an event for each tweet except its first ``threshold``. The result is
    the maximum of these numbers for all ``s``.
    """
    fewest = 0
    for place, s in enumerate(times):
        dropping = [len(sent) - bisect_right(sent, s + window) for sent in watermarks]
        drops = sum(dropping) + max(0, sum(map(bool, dropping)) - 1)
        fewest = max(fewest, len(times) - place - (drops + 1) * threshold)
    return fewest
