"""The topics and offsets that a ``KafkaSource`` reads."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.offsets import OffsetsInitializer


@dataclass(frozen=True)
class Subscription:
    """Topics by name, or by a ``pattern`` that matches their whole names, with the range of offsets to read."""

    topics: tuple[str, ...] | None
    pattern: str | None
    starting_offsets: OffsetsInitializer
    stopping_offsets: OffsetsInitializer | None
    on_offsets_out_of_range: OnOffsetsOutOfRange

    def __str__(self) -> str:
        return ", ".join(self.topics) if self.topics is not None else f"topics like {self.pattern!r}"
