"""Bounds of the exploration of cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.proofs.rules import FOLDS


@dataclass(frozen=True)
class Bounds:
    """Bounds of an exploration.

    Attributes:
        gates: For each number of channels of a gate: the number of events in a frame of a watermark that is not
            aligned, and the number of its different values, at most.
        held: The number of elements behind an aligned watermark, at most.
        inputs: The numbers of channels of the inputs of operators.
        folds: The names of the combinations of operators. Gates have all of them.
        wide_folds: Those of operators with more than two channels, of aligned watermarks of gates with that many, of
            two operators with more than two channels, of watermarks that expire on two inputs.
        mixed: Whether operators have several watermarks, and watermarks that are delivered on every arrival.
        chains: Two operators: the number of subtasks of the first one, and of their channels.
        times: Gates that receive event time: the numbers of channels and of different values, and whether the flag
            follows.
        times_of_inputs: Operators that receive event time and the flag: the numbers of channels of their inputs, and of
            different values.
        time_chains: The same for two operators: the number of subtasks of the first one.
        barriers: Operators that receive barriers: the numbers of channels of their inputs, the number of different ids,
            and the number of events in a frame, at most.
        barrier_chains: Two operators that receive barriers: the number of subtasks of the first one, of their channels,
            and of different ids.
        expiring: Operators that receive watermarks that expire: the numbers of channels of their inputs, and the number
            of events in a frame, at most.
        functions: Operators whose functions take watermarks over or emit some: the numbers of channels of their inputs.
        function_chains: The same for the first of two operators: the number of its subtasks.
        keyed: Operators that receive per-key watermarks: the number of channels and of keys.
        folds_of_keys: The names of the combinations of per-key watermarks.
    """

    gates: Mapping[int, tuple[int, int]]
    held: int
    inputs: Sequence[tuple[int, ...]]
    folds: Sequence[str]
    wide_folds: Sequence[str]
    mixed: bool
    chains: Sequence[tuple[int, int]]
    times: Sequence[tuple[int, int, bool]]
    times_of_inputs: Sequence[tuple[tuple[int, ...], int]]
    time_chains: Sequence[int]
    barriers: Sequence[tuple[tuple[int, ...], int, int]]
    barrier_chains: Sequence[tuple[int, int, int]]
    expiring: Sequence[tuple[tuple[int, ...], int]]
    functions: Sequence[tuple[int, ...]]
    function_chains: Sequence[int]
    keyed: Sequence[tuple[int, int]]
    folds_of_keys: Sequence[str]

    def folds_of(self, channels: int) -> Sequence[str]:
        """The combinations of operators with a number of channels."""
        return self.folds if channels < WIDE else self.wide_folds


WIDE = 3
"""From this number of channels, there are fewer combinations."""
BOUNDED = Bounds(
    gates={1: (2, 2), 2: (1, 2)},
    held=3,
    inputs=((1,), (1, 1)),
    folds=("min",),
    wide_folds=(),
    mixed=False,
    chains=((2, 1),),
    times=((3, 2, False), (2, 2, True)),
    times_of_inputs=(((1,), 2), ((1, 1), 1)),
    time_chains=(2,),
    barriers=(((2,), 2, 1), ((1, 1), 2, 1)),
    barrier_chains=((2, 1, 2),),
    expiring=(((2,), 1), ((1, 1), 1)),
    functions=((1,),),
    function_chains=(2,),
    keyed=((1, 2), (2, 1)),
    folds_of_keys=("min",),
)
"""For every run of the tests."""
NIGHTLY = Bounds(
    gates={1: (3, 3), 2: (2, 3), 3: (1, 2)},
    held=4,
    inputs=((1,), (2,), (3,), (1, 1), (2, 1)),
    folds=tuple(FOLDS),
    wide_folds=("min", "median"),
    mixed=True,
    chains=((2, 1), (3, 1), (2, 2)),
    times=((3, 3, False), (3, 2, True)),
    times_of_inputs=(((1,), 2), ((2,), 2), ((1, 1), 2), ((2, 1), 1)),
    time_chains=(2, 3),
    barriers=(((1,), 4, 2), ((2,), 3, 1), ((2,), 2, 2), ((1, 1), 2, 1), ((3,), 2, 1), ((2, 1), 2, 1)),
    barrier_chains=((2, 1, 3), (3, 1, 2), (2, 2, 2)),
    expiring=(((1,), 2), ((2,), 1), ((1, 1), 1), ((2,), 2), ((3,), 1)),
    functions=((1,), (2,), (1, 1)),
    function_chains=(2,),
    keyed=((1, 2), (2, 1), (2, 2)),
    folds_of_keys=("min", "or", "union", "median", "sum"),
)
