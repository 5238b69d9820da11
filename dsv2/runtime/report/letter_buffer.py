"""Collects the dead letters of an operator that nothing reads, in the form in which they are stored.

A stored letter is a JSON object that people can read. It also has the exact record, encoded and sealed like state.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, NamedTuple

from dsv2.errors import Dsv2Error
from dsv2.model.error_policy import DeadLetter
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import BlobKind, Codec

_LONGEST_TEXT = 4000  # characters of a message or traceback


class Received(NamedTuple):
    """A record as an operator received it.

    Attributes:
        input: The index of the input; None for a value that a source has read.
        record: The record.
        timestamp: Its timestamp in ms, or None.
    """

    input: int | None
    record: Any
    timestamp: int | None


class LetterBox:
    """The letters of one operator in one subtask since the last ``take``.

    Args:
        codec: Seals the records.
        parallelism: The parallelism of the operator.
    """

    def __init__(self, codec: Codec, parallelism: int) -> None:
        self._codec = codec
        self._parallelism = parallelism
        self._letters: list[dict[str, Any]] = []

    def add(self, letter: DeadLetter[Any], received: Received | None) -> None:
        """Add a letter. ``received``: Its record as it was received; None: it has none."""
        payload, obstacle = self._sealed(letter.callback, received)
        self._letters.append(
            {
                "operator": letter.operator,
                "subtask": letter.subtask,
                "parallelism": self._parallelism,
                "callback": letter.callback,
                "input": None if received is None else received.input,
                "key": None if letter.key is None else shorten(letter.key),
                "record": None if letter.record is None else shorten(letter.record),
                "timestamp": None if received is None else received.timestamp,
                "error_type": letter.error_type,
                "error_message": _cut(letter.error_message),
                "traceback": _cut(letter.traceback),
                "location": letter.location,
                "time": datetime.fromtimestamp(letter.time / 1000, UTC).isoformat(timespec="milliseconds"),
                "position": None if letter.position is None else asdict(letter.position),
                "payload": payload,
                "obstacle": obstacle,
            }
        )

    def take(self) -> list[dict[str, Any]]:
        """Return and remove the letters, as JSON values."""
        letters, self._letters = self._letters, []
        return letters

    def _sealed(self, callback: str, received: Received | None) -> tuple[str | None, str | None]:
        """The encoded record, and why it cannot be processed again."""
        if received is None:
            return None, f"{callback} has no record of its own"
        try:
            blob = self._codec.seal(BlobKind.LETTER, (received.record, received.timestamp))
        except Dsv2Error as error:
            return None, f"its record cannot be stored: {error}"
        return b64encode(blob).decode(), None


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
