"""Settings of async functions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from dsv2.checks.arguments import as_milliseconds, check_whole_number, is_number
from dsv2.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class AsyncSettings:
    """Limits and order of the calls of an async function, for each subtask.

    Attributes:
        capacity: The maximum number of calls in flight.
        timeout: How long the processing of a record may take, including repeated calls and the pauses between them
            (as in Flink). Then it is cancelled and fails with a ``TimeoutError``. None: there is no limit.
        ordered: Whether records are emitted in the order of the input. If False they are emitted as their calls
            complete, but they do not overtake watermarks, nor earlier records of their key.
        calls_per_second: The rate at which calls begin at most, evenly spaced. None: there is no limit.

    Raises:
        ConfigurationError: A value is invalid.
    """

    capacity: int = 100
    timeout: timedelta | None = None
    ordered: bool = True
    calls_per_second: float | None = None

    def __post_init__(self) -> None:
        check_whole_number(self.capacity, "capacity")
        if self.timeout is not None:
            as_milliseconds(self.timeout, "timeout", at_least=1)
        if self.calls_per_second is not None and not (is_number(self.calls_per_second) and self.calls_per_second > 0):
            raise ConfigurationError(f"calls_per_second must be a number above 0, not {self.calls_per_second!r}.")


@dataclass(frozen=True, kw_only=True)
class AsyncBatchSettings(AsyncSettings):
    """Limits and order of the calls of an async function that takes batches of records.

    Attributes:
        batch_size: The maximum number of records in a batch.
        max_delay: The time a record waits for others of its batch, while its micro-batch lasts. None: until the batch
            is full, a watermark arrives, or the micro-batch ends.

    Raises:
        ConfigurationError: A value is invalid.
    """

    capacity: int = 10
    batch_size: int = 100
    max_delay: timedelta | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole_number(self.batch_size, "batch_size")
        if self.max_delay is not None:
            as_milliseconds(self.max_delay, "max_delay", at_least=1)
