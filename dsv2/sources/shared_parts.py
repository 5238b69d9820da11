"""Parts of the sources of connectors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Generic

from dsv2.base.record_position import SplitName
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import as_milliseconds
from dsv2.sources.split_batch import SplitBatch


class DecodingSource(Generic[T_co]):
    """A source whose function ``decode`` creates the records, also those of dead letters."""

    _decode: Callable[[Any], T_co]

    def decode_again(self, value: Any, split: SplitName, /) -> SplitBatch[T_co]:
        """Return a batch with one value, that of a dead letter. See ``SourceReader.decode_again``."""
        return SplitBatch([value], self._decode)


class FollowingSource:
    """A source that is bounded, or looks for more after each ``discovery_interval``."""

    def __init__(self, discovery_interval: timedelta | None) -> None:
        """Check the interval. Raises ``ConfigurationError``."""
        if discovery_interval is not None:
            as_milliseconds(discovery_interval, "discovery_interval", at_least=1)
        self.discovery_interval = discovery_interval

    @property
    def bounded(self) -> bool:
        """True if the source is finite."""
        return self.discovery_interval is None
