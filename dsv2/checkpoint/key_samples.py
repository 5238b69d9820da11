"""Samples of records with the hash of their key, stored in the checkpoint to detect changed key selectors at a restart.

A changed selector returns keys that have no state. Its digest reveals most changes. A sample whose key now has another
hash reveals the others.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from msgspec import Meta
from typing_extensions import TypedDict

from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.operator_differences import at
from dsv2.errors import CorruptDataError
from dsv2.graph import Plan
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.key_groups import stable_hash

_MAX_RECORD_BYTES = 8192
_MAX_SAMPLES = 16  # per input, with distinct keys


class KeySample(TypedDict):
    """A sample, as JSON: the uid of an operator, its input, a record (encoded), and its key, as a hash and readable."""

    key_of: str
    input: Annotated[int, Meta(ge=0)]
    record: str
    hash: int
    key: str


class KeySampler:
    """Samples the first record of each keyed input of a subtask in a micro-batch."""

    def __init__(self, plan: Plan, head: int, codec: Codec) -> None:
        self._uid = plan.operators[head].uid
        self._codec = codec
        self._inputs = [
            (edge.input, edge.key_selector) for edge in plan.edges_into[head] for _ in range(plan.channels_of(edge))
        ]
        self._samples: dict[int, KeySample | None] = {}

    def see(self, channel: int, records: Sequence[Any]) -> None:
        """Called with the records of a channel before they are processed."""
        number, select = self._inputs[channel]
        if select is None or not len(records) or number in self._samples:
            return
        self._samples[number] = None
        try:
            record = records[0]
            data = self._codec.dumps(record)
            key = select(record)
            hashed = stable_hash(key)
        except Exception:  # processing reports the error in more detail, and Arrow functions need no single records
            return
        if len(data) <= _MAX_RECORD_BYTES:
            self._samples[number] = {
                "key_of": self._uid,
                "input": number,
                "record": b64encode(data).decode(),
                "hash": hashed,
                "key": shorten(key),
            }

    def report(self) -> list[KeySample]:
        """Return the samples."""
        return [sample for sample in self._samples.values() if sample is not None]


def add_samples(kept: list[KeySample], new: Iterable[KeySample]) -> list[KeySample]:
    """Return ``kept`` and the samples in ``new`` with other keys, up to a maximum per input."""
    result = list(kept)
    for sample in new:
        of_input = [other["hash"] for other in result if _place(other) == _place(sample)]
        if len(of_input) < _MAX_SAMPLES and sample["hash"] not in of_input:
            result.append(sample)
    return result


def readable_samples(plan: Plan, samples: Iterable[KeySample], codec: Codec) -> list[tuple[KeySample, Any]]:
    """Return the samples for inputs of ``plan``, with their records.

    A record that can no longer be read, because its class has changed, is skipped.
    """
    places = {(plan.operators[edge.target].uid, edge.input) for edge in plan.edges if edge.key_selector is not None}
    readable = []
    for sample in samples:
        if _place(sample) in places:
            try:
                readable.append((sample, codec.loads(b64decode(sample["record"], validate=True), "A sample of keys")))
            except (CorruptDataError, ValueError):
                continue
    return readable


def changed_keys(plan: Plan, samples: Iterable[tuple[KeySample, Any]]) -> list[Difference]:
    """Return a difference for each input with a sample that has another key in ``plan`` than before."""
    targets = {(plan.operators[edge.target].uid, edge.input): edge for edge in plan.edges}
    found: dict[tuple[str, int], Difference] = {}
    for sample, record in samples:
        edge = targets[_place(sample)]
        if edge.key_selector is None or _place(sample) in found:
            continue
        try:
            key = edge.key_selector(record)
            if stable_hash(key) == sample["hash"]:
                continue
            now = f"returns {shorten(key)}"
        except Exception as error:
            now = f"raises {type(error).__name__}: {error}"
        uid, location = plan.operators[edge.target].uid, plan.operators[edge.target].location
        found[_place(sample)] = Difference(
            uid,
            f"{at(uid, location)}: the key selector of input {edge.input} returns another key than before: for "
            f"{shorten(record)} it returned {sample['key']}, and now it {now}",
            carried=False,
        )
    return list(found.values())


def _place(sample: KeySample) -> tuple[str, int]:
    return sample["key_of"], sample["input"]
