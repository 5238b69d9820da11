"""Faults of per-key watermarks."""

from __future__ import annotations

from typing import Any

from dsv2.runtime.operator.key_watermarks import KeyWatermarks
from dsv2.watermark.combiner import new_combiner
from tests.proofs.mutations.mutation import Mutation, nothing


def _start_again(original: Any) -> Any:
    def loaded(self: Any, key: Any, name: tuple[int, str]) -> tuple[list[Any], Any]:
        gate = self._gates[name[0]]
        return [], new_combiner(self._declarations[name[1]], gate.channels, gate.inactive, self._now)

    return loaded


KEYS = [
    Mutation("what the channels have sent for a key is forgotten",
     "functions, 2 keys, inputs of 1 channels, MIN (wait for none)", "change", KeyWatermarks, "_loaded", _start_again),
    Mutation("the watermarks of keys wait for idle channels",
     "functions, 1 keys, inputs of 2 channels, MIN (wait for all)", "progress", KeyWatermarks, "changed", nothing),
]  # fmt: skip
