"""The limit of what the driver receives for one sink."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.checks.arguments import check_at_least_one

MAX_RECORDS = 5_000_000
"""The default number of records in a micro-batch."""
MAX_BYTES = 512 << 20
"""The default number of bytes in a micro-batch."""


@dataclass(frozen=True, slots=True)
class DriverLimit:
    """The maximum that the driver receives for one sink in one micro-batch.

    Attributes:
        max_records: The number of records. None: any number.
        max_bytes: The size in bytes as the records are sent to the driver. None: any size.

    Raises:
        ConfigurationError: A number is not a whole number of at least 1.
    """

    max_records: int | None = MAX_RECORDS
    max_bytes: int | None = MAX_BYTES

    def __post_init__(self) -> None:
        check_at_least_one(max_records=self.max_records, max_bytes=self.max_bytes)
