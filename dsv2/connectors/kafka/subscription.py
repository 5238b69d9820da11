"""What a ``KafkaSource`` reads, as the user has said it."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.connectors.kafka.choices import OnOffsetsOutOfRange
from dsv2.connectors.kafka.offsets import OffsetsInitializer

__all__ = ("Subscription",)


@dataclass(frozen=True)
class Subscription:
    """``topics`` by name, or those whose whole name fits ``pattern``; from where, and up to where."""

    topics: tuple[str, ...] | None
    pattern: str | None
    starting_offsets: OffsetsInitializer
    stopping_offsets: OffsetsInitializer | None
    on_offsets_out_of_range: OnOffsetsOutOfRange

    def __str__(self) -> str:
        return ", ".join(self.topics) if self.topics is not None else f"topics like {self.pattern!r}"
