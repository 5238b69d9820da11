"""The events of an online auction: the classes, and a generator of columns.

Of each 50 events, a *round*, one is a person, three are auctions and 46 are bids, as in the suite of
github.com/nexmark/nexmark. The fields of an event depend on its index only, so any part of the stream can be generated
again. Most bids go to a few hot auctions and come from a few hot bidders.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ("Auction", "Bid", "Person", "auctions", "bids", "people")

Numbers: TypeAlias = npt.NDArray[np.int64]

PER_ROUND = 50
FIRST_TIME = 1_767_225_540_000
"""The time of the first event, in ms: a minute before midnight."""
MAX_DELAY = 3_000
"""An event may arrive this many ms later than one with a greater time."""
_FIRST_ID = 1_000
_AHEAD = 10
"""Bids may be for one of the next auctions, which do not exist yet."""
_CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
_STATES = ("AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WA", "WA", "WY")
_FIRST_NAMES = ("Ada", "Alan", "Barbara", "Edgar", "Frances", "Grace", "Jim", "Ken", "Leslie", "Michael", "Tony")
_LAST_NAMES = ("Allen", "Codd", "Gray", "Hoare", "Hopper", "Lamport", "Liskov", "Lovelace", "Stonebraker", "Turing")
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_CHANNELS = 10_000


class Person(NamedTuple):
    id: int
    name: str
    email: str
    credit_card: str
    city: str
    state: str
    time: int  # ms
    extra: str


class Auction(NamedTuple):
    id: int
    item: str
    description: str
    initial_bid: int
    reserve: int
    time: int  # ms
    expires: int  # ms
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    time: int  # ms
    extra: str


def people(rounds: Numbers, events_per_second: int) -> pa.Table:
    """Generate the person of each of the ``rounds``."""
    index = rounds * PER_ROUND
    city = _random(index, 1, len(_CITIES))
    name = _random(index, 2, len(_NAMES))
    card = pa.array(_random(index, 3, 10**16)).cast(pa.string())
    columns = {
        "id": _FIRST_ID + rounds,
        "name": _NAMES.take(name),
        "email": _EMAILS.take(name),
        "credit_card": card,
        "city": pa.array(_CITIES).take(city),
        "state": pa.array(_STATES).take(city),
        "time": _time(index, events_per_second),
        "extra": _letters(index, 4),
    }
    return pa.table(columns)


def auctions(rounds: Numbers, events_per_second: int) -> pa.Table:
    """Generate the three auctions of each of the ``rounds``."""
    number = (rounds[:, None] * 3 + np.arange(3)).ravel()
    last_person = number // 3
    index = last_person * PER_ROUND + 1 + number % 3
    time = _time(index, events_per_second)
    initial_bid = _price(index, 1)
    hot = _random(index, 2, 4) > 0
    some_person = last_person - _random(index, 3, np.minimum(last_person + 1, 1_000))
    columns = {
        "id": _FIRST_ID + number,
        "item": _letters(index, 4),
        "description": _letters(index, 5),
        "initial_bid": initial_bid,
        "reserve": initial_bid + _price(index, 6),
        "time": time,
        # The last digits are those of the number: hardly ever do two auctions of a seller expire at once.
        "expires": (time + 100 + _random(index, 7, 20_000)) // 100 * 100 + number % 100,
        "seller": _FIRST_ID + np.where(hot, last_person // 100 * 100, some_person),
        "category": 10 + _random(index, 8, 5),
        "extra": _letters(index, 9),
    }
    return pa.table(columns)


def bids(rounds: Numbers, events_per_second: int) -> pa.Table:
    """Generate the 46 bids of each of the ``rounds``."""
    index = (rounds[:, None] * PER_ROUND + np.arange(4, PER_ROUND)).ravel()
    last_person = index // PER_ROUND
    last_auction = last_person * 3 + 2
    some_auction = last_auction + _AHEAD - _random(index, 1, np.minimum(last_auction + _AHEAD + 1, 100 + _AHEAD))
    some_person = last_person - _random(index, 2, np.minimum(last_person + 1, 1_000))
    hot_bidder = np.minimum(last_person // 100 * 100 + 1, last_person)
    hot_channel = _random(index, 3, 2) > 0
    channel = np.where(hot_channel, _CHANNELS + _random(index, 4, 4), _random(index, 5, _CHANNELS))
    names, urls = _channels()
    columns = {
        "auction": _FIRST_ID + np.where(_random(index, 6, 2) > 0, last_auction // 100 * 100, some_auction),
        "bidder": _FIRST_ID + np.where(_random(index, 7, 4) > 0, hot_bidder, some_person),
        "price": _price(index, 8),
        "channel": names.take(channel),
        "url": urls.take(channel),
        "time": _time(index, events_per_second),
        "extra": _letters(index, 9),
    }
    return pa.table(columns)


def _time(index: Numbers, events_per_second: int) -> Numbers:
    return FIRST_TIME + index * 1_000 // events_per_second - _random(index, 0, MAX_DELAY)


def _price(index: Numbers, field: int) -> Numbers:
    """Prices from 100 to 100,000,000, evenly distributed by their magnitude."""
    return np.round(100 * 10 ** (_random(index, field, 1 << 30) / (1 << 30) * 6)).astype(np.int64)


def _random(index: Numbers, field: int, limit: int | Numbers) -> Numbers:
    """Whole numbers from 0 to below ``limit``: a hash (SplitMix64) of the index of the event and the field."""
    bits = (index.astype(np.uint64) * np.uint64(16) + np.uint64(field + 1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return (bits >> np.uint64(1)).astype(np.int64) % limit


def _letters(index: Numbers, field: int) -> pa.Array:
    """Twelve letters for each event, from a to p."""
    bits = _random(index, field, 1 << 62)
    letters = np.stack([_FOUR_LETTERS[bits >> shift & 0xFFFF] for shift in (0, 16, 32)], axis=1)
    offsets = np.arange(0, 12 * len(index) + 1, 12, dtype=np.int32)
    return pa.StringArray.from_buffers(len(index), pa.py_buffer(offsets), pa.py_buffer(letters))


_FOUR_LETTERS = (
    ((np.arange(1 << 16)[:, None] >> np.arange(0, 16, 4) & 15) + ord("a")).astype(np.uint8).view(np.uint32)[:, 0]
)
"""The letters of each number of 16 bits."""
_NAMES = pa.array([f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES])
_EMAILS = pa.array([f"{first}@{last}.example".lower() for first in _FIRST_NAMES for last in _LAST_NAMES])


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """The names and addresses of all channels. The hot ones are the last, and one in ten of the others has no id."""
    names = [f"channel-{number}" for number in range(_CHANNELS)]
    folders = _letters(np.arange(_CHANNELS + len(_HOT_CHANNELS)), 15).to_pylist()
    pages = [f"https://www.nexmark.com/{text[:4]}/{text[4:8]}/{text[8:]}/item.htm?query=1" for text in folders]
    urls = [page if number % 10 == 0 else f"{page}&channel_id={number}" for number, page in enumerate(pages)]
    return pa.array([*names, *_HOT_CHANNELS]), pa.array([*urls[:_CHANNELS], *pages[_CHANNELS:]])
