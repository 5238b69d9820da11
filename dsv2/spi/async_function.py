"""The base of functions whose process callback is a coroutine."""

from __future__ import annotations

from abc import ABC
from typing import Generic, TypeVar

from dsv2.model.async_settings import AsyncSettings
from dsv2.spi.process_function import ProcessFunction

IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)


class AsyncFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function with one input and one output that processes several records at the same time."""

    async_settings: AsyncSettings = AsyncSettings()
    """Limits and order of the calls. Set it in the class or in the constructor."""
