"""The handle that ``to_sink`` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dsv2.configurable import ProcessConfigurable
from dsv2.error_policy import DeadLetter

if TYPE_CHECKING:
    from dsv2.streams import ConfiguredStream

__all__ = ("ConfiguredSink",)

T = TypeVar("T")


class ConfiguredSink(ProcessConfigurable):
    """The handle on a sink."""

    def dead_letters(self, record_type: type[T]) -> ConfiguredStream[DeadLetter[T]]:
        """The records that do not fit the sink, see ``ErrorPolicy.dead_letter``. ``record_type``: That of its input."""
        from dsv2.stream_base import dead_letters
        from dsv2.streams import ConfiguredStream

        return ConfiguredStream(self._builder, dead_letters(self._node))
