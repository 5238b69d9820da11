"""Split assignment: the shared enumerator, called as the runtime calls it, over failures and restarts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from dsv2.errors import CorruptDataError
from dsv2.sources import (
    AssigningEnumerator,
    AssignmentState,
    AssignmentStateSerializer,
    DataclassSerializer,
    HashSplitAssigner,
    Portion,
    ReaderInfo,
    RoundRobinSplitAssigner,
    SplitAssigner,
    SplitDiscovery,
)
from dsv2.testing import ManualClock
from dsv2.watermark import Watermark
from tests.durations import ms


@dataclass(frozen=True)
class Partition:
    topic: str
    number: int
    offset: int = 0

    @property
    def split_id(self) -> str:
        return f"{self.topic}-{self.number}"


def partitions(topic: str, count: int) -> list[Partition]:
    return [Partition(topic, number) for number in range(count)]


def place(split: Partition) -> tuple[str, int]:
    return split.topic, split.number


class Listed(SplitDiscovery[Partition]):
    """Discovers the listed splits. Every split has 100 records."""

    def __init__(self, splits: Collection[Partition]) -> None:
        self.splits = list(splits)
        self.looks = 0

    def discover(self) -> list[Partition]:
        self.looks += 1
        return self.splits

    def advance(self, split: Partition, limit: int | None, /) -> Portion[Partition] | None:
        return Portion(Partition(split.topic, split.number, 100), last=True)


class Job:
    """The readers of a source, which may fail, and its enumerator (``SplitEnumeratorContext``)."""

    def __init__(
        self,
        parallelism: int,
        discovery: SplitDiscovery[Partition],
        assigner: SplitAssigner[Partition],
        restored: AssignmentState[Partition] | None = None,
        *,
        bounded: bool = False,
        discovery_interval: timedelta | None = None,
    ) -> None:
        self.parallelism = parallelism
        self.limit_per_batch: int | None = None
        self.clock = ManualClock()
        self.registered_readers: dict[int, ReaderInfo[Partition]] = {}
        self.holds: list[list[Partition]] = [[] for _ in range(parallelism)]
        self.given: list[tuple[int, Partition]] = []
        self.no_more = set[int]()
        self.enumerator = AssigningEnumerator(
            self, restored, discovery, assigner, bounded=bounded, discovery_interval=discovery_interval
        )
        self.enumerator.start()

    def assign_splits(self, assignment: Mapping[int, Sequence[Partition]], /) -> None:
        for subtask, splits in assignment.items():
            assert subtask in self.registered_readers
            self.holds[subtask] += splits
            self.given += [(subtask, split) for split in splits]

    def signal_no_more_splits(self, subtask: int, /) -> None:
        self.no_more.add(subtask)

    def emit_watermark(self, watermark: Watermark, /) -> None:
        raise AssertionError("not by this enumerator")

    def register(self, subtask: int, *reported: Partition) -> None:
        self.holds[subtask] = []
        self.registered_readers[subtask] = ReaderInfo(subtask, reported)
        self.enumerator.add_reader(self.registered_readers[subtask])

    def register_all(self, reported: Sequence[Sequence[Partition]] = ()) -> None:
        for subtask in range(self.parallelism):
            self.register(subtask, *(reported[subtask] if subtask < len(reported) else ()))

    def fail(self, subtask: int, *since_checkpoint: Partition) -> None:
        """Reader ``subtask`` fails. It was assigned these splits since the last checkpoint."""
        del self.registered_readers[subtask]
        self.holds[subtask] = []
        self.enumerator.add_splits_back(since_checkpoint, subtask)

    def checkpoint(self) -> AssignmentState[Partition]:
        """The enumerator's state as it is restored from a checkpoint."""
        serializer = AssignmentStateSerializer(DataclassSerializer(Partition))
        return serializer.from_json(json.loads(json.dumps(serializer.to_json(self.enumerator.snapshot_state()))))

    def owners(self) -> dict[Partition, int]:
        """The owner of each split. No split has two owners."""
        pairs = [(split, subtask) for subtask, splits in enumerate(self.holds) for split in splits]
        owners = dict(pairs)
        assert len({split.split_id for split in owners}) == len(pairs)
        return owners

    def counts(self) -> list[int]:
        return [len(splits) for splits in self.holds]


def started(parallelism: int, splits: Collection[Partition], assigner: SplitAssigner[Partition]) -> Job:
    job = Job(parallelism, Listed(splits), assigner)
    job.register_all()
    job.enumerator.refresh()
    return job


ASSIGNERS = [HashSplitAssigner(place), RoundRobinSplitAssigner()]
both_assigners = pytest.mark.parametrize("assigner", ASSIGNERS, ids=["hash", "round-robin"])
P1, P2, P3 = Partition("t", 1), Partition("t", 2), Partition("t", 3)


# --- The five cases of FLIP-537 ---------------------------------------------------------------------------------------


@both_assigners
def test_reported_unassigned_splits_are_checkpointed(assigner: SplitAssigner[Partition]) -> None:
    before = started(1, [P1, P2], assigner).checkpoint()
    moved = [Partition("t", 1, 7), Partition("t", 2, 9)]
    job = Job(2, Listed([P1, P2]), assigner, before)
    job.register_all([[moved[0]], [moved[1]]])
    assert job.owners() == {}  # nothing is assigned before the first discovery
    again = Job(2, Listed([P1, P2]), assigner, job.checkpoint())
    again.register_all()
    again.enumerator.refresh()
    assert sorted(again.owners(), key=str) == moved


def test_reassigned_split_is_not_returned_to_its_old_reader() -> None:
    before = started(1, [P1, P2], RoundRobinSplitAssigner()).checkpoint()
    job = Job(2, Listed([P1, P2]), RoundRobinSplitAssigner(), before)
    job.register_all([[P1, P2]])
    job.enumerator.refresh()
    assert job.owners() == {P1: 0, P2: 1}
    job.fail(0, P1)  # before a checkpoint: it registers with its splits from before the restart
    job.register(0, P1, P2)
    assert job.owners() == {P1: 0, P2: 1}
    job.enumerator.refresh()
    assert job.owners() == {P1: 0, P2: 1}


@both_assigners
def test_split_of_a_failed_reader_waits_for_it(assigner: SplitAssigner[Partition]) -> None:
    job = started(3, [P1, P2, P3], assigner)
    owner = job.owners()[P2]
    others = {split: subtask for split, subtask in job.owners().items() if subtask != owner}
    own = [split for split, subtask in job.owners().items() if subtask == owner]
    job.checkpoint()
    job.fail(owner, *own)
    job.enumerator.refresh()
    assert job.owners() == others
    assert job.checkpoint().pending == {owner: tuple(own)}
    job.register((owner + 1) % 3, *(split for split, subtask in others.items() if subtask == (owner + 1) % 3))
    assert P2 not in job.owners()
    job.register(owner)
    assert job.owners() == others | dict.fromkeys(own, owner)


def test_failed_reader_reports_its_checkpointed_splits() -> None:
    job = started(2, [P1, P2], RoundRobinSplitAssigner())
    moved = Partition("t", 2, 50)
    job.fail(1)
    job.enumerator.refresh()
    assert job.owners() == {P1: 0}
    job.register(1, moved)
    assert job.owners() == {P1: 0, moved: 1}


def test_finished_or_dropped_splits_do_not_come_back() -> None:
    job = started(1, [P1, P2], RoundRobinSplitAssigner())
    job.enumerator.advance(P1, None)
    job.fail(0, P1, P2, P3)
    job.register(0)
    assert job.owners() == {P2: 0}


def test_more_readers_and_partitions_reassign_all_splits() -> None:
    old, new = partitions("t", 6), partitions("t", 12)
    assigner = RoundRobinSplitAssigner()
    before = started(3, old, assigner)
    assert before.counts() == [2, 2, 2]
    job = Job(6, Listed(new), assigner, before.checkpoint())
    job.register_all([[Partition(split.topic, split.number, 5) for split in splits] for splits in before.holds])
    job.enumerator.refresh()
    assert job.counts() == [2] * 6
    offsets = {split.number: split.offset for split in job.owners()}
    assert offsets == {number: 5 if number < 6 else 0 for number in range(12)}


def test_two_topics_of_four_partitions_at_parallelism_eight() -> None:
    splits = [*partitions("a", 4), *partitions("b", 4)]
    assert started(8, splits, RoundRobinSplitAssigner()).counts() == [1] * 8
    by_hash = started(8, splits, HashSplitAssigner(place))
    for topic in "ab":  # evenly within one topic, but not over both
        held = Counter(subtask for split, subtask in by_hash.owners().items() if split.topic == topic)
        assert set(held.values()) == {1}
    assert sorted(by_hash.counts()) == [0, 0, 1, 1, 1, 1, 2, 2]


# --- Stickiness, dropped splits, discovery ----------------------------------------------------------------------------


def test_split_stays_with_its_reader_even_if_uneven() -> None:
    before = started(2, partitions("t", 4), RoundRobinSplitAssigner())
    left = [split for split in before.owners() if split.number in (0, 2)]  # all of reader 0
    job = Job(2, Listed([*left, Partition("t", 9)]), RoundRobinSplitAssigner(), before.checkpoint())
    job.register_all(before.holds)
    job.enumerator.refresh()
    assert job.owners() == {Partition("t", 0): 0, Partition("t", 2): 0, Partition("t", 9): 1}


@both_assigners
def test_missing_splits_are_dropped_at_a_restart_only(assigner: SplitAssigner[Partition]) -> None:
    discovery = Listed([*partitions("a", 2), *partitions("b", 2)])
    before = Job(2, discovery, assigner, discovery_interval=ms(1000))
    before.register_all()
    before.enumerator.refresh()
    discovery.splits = partitions("a", 2)
    before.clock.advance(ms(1000))
    before.enumerator.refresh()
    assert len(before.owners()) == 4
    job = Job(2, discovery, assigner, before.checkpoint())
    job.register_all(before.holds)
    job.enumerator.refresh()
    assert sorted(job.owners(), key=str) == partitions("a", 2)
    assert sorted(job.checkpoint().owners) == ["a-0", "a-1"]
    job.register(0, *before.holds[0])  # it registers with its former splits
    assert {split.topic for split in job.owners()} == {"a"}


def test_missing_pending_and_unassigned_splits_are_dropped() -> None:
    state = AssignmentState(2, True, {"t-1": 1}, {1: (P1,)}, (P2, P3), ())
    job = Job(2, Listed([P3]), RoundRobinSplitAssigner(), state)
    job.register_all()
    job.enumerator.refresh()
    assert job.owners() == {P3: 0}


def test_new_splits_are_discovered_in_intervals() -> None:
    discovery = Listed([P1])
    job = Job(1, discovery, RoundRobinSplitAssigner(), discovery_interval=ms(500))
    job.register_all()
    job.enumerator.refresh()
    discovery.splits = [P1, P2]
    job.clock.advance(ms(499))
    job.enumerator.refresh()
    assert (job.owners(), discovery.looks) == ({P1: 0}, 1)
    job.clock.advance(ms(1))
    job.enumerator.refresh()
    assert (job.owners(), discovery.looks) == ({P1: 0, P2: 0}, 2)
    assert job.no_more == set()


def test_splits_are_assigned_once_all_readers_registered() -> None:
    job = Job(2, Listed([P1, P2]), RoundRobinSplitAssigner())
    job.enumerator.refresh()
    job.register(0)
    assert job.given == []
    job.register(1)
    assert job.given == [(0, P1), (1, P2)]


def test_bounded_source_discovers_once() -> None:
    discovery = Listed([P1])
    first = Job(2, discovery, RoundRobinSplitAssigner(), bounded=True, discovery_interval=ms(1))
    first.register_all()
    assert first.no_more == set()
    first.enumerator.refresh()
    first.clock.advance(ms(1))
    first.enumerator.refresh()
    assert (first.no_more, discovery.looks) == ({0, 1}, 1)
    assert first.enumerator.advance(P1, None) is not None
    assert first.checkpoint().finished == ()  # never needed again
    first = Job(2, Listed([P1]), RoundRobinSplitAssigner(), bounded=True)
    first.register_all()
    first = Job(2, Listed([P1]), RoundRobinSplitAssigner(), first.checkpoint(), bounded=True)
    first.register_all()
    first.enumerator.refresh()  # the first discovery: the checkpoint was taken before it
    assert first.owners() == {P1: 0}
    discovery = Listed([P2])
    again = Job(2, discovery, RoundRobinSplitAssigner(), first.checkpoint(), bounded=True)
    again.register_all(first.holds)
    again.enumerator.refresh()
    assert (again.owners(), discovery.looks, again.no_more) == ({P1: 0}, 0, {0, 1})


def test_finished_splits_are_not_read_again() -> None:
    discovery = Listed([P1, P2])
    job = Job(1, discovery, RoundRobinSplitAssigner(), discovery_interval=ms(1))
    job.register_all()
    job.enumerator.refresh()
    assert job.enumerator.advance(P1, None) is not None
    job.clock.advance(ms(1))
    job.enumerator.refresh()
    assert job.given == [(0, P1), (0, P2)]
    state = job.checkpoint()
    assert (state.finished, state.owners) == (("t-1",), {"t-2": 0})
    again = Job(1, discovery, RoundRobinSplitAssigner(), state)
    again.register(0, P2)
    again.enumerator.refresh()
    assert again.given == [(0, P2)]
    discovery.splits = [P2]
    again = Job(1, discovery, RoundRobinSplitAssigner(), state)
    again.register(0, P2)
    again.enumerator.refresh()
    assert again.checkpoint().finished == ()  # and not remembered forever


# --- Assigners --------------------------------------------------------------------------------------------------------


def test_hash_does_not_depend_on_other_splits() -> None:
    assigner = HashSplitAssigner(place)
    held = dict.fromkeys(range(5), 0)
    alone = [assigner.assign([split], held)[0] for split in partitions("t", 7)]
    assert assigner.assign(partitions("t", 7), held) == alone
    assert [(subtask - alone[0]) % 5 for subtask in alone] == [0, 1, 2, 3, 4, 0, 1]


def test_hash_without_places_uses_the_split_id() -> None:
    chosen = HashSplitAssigner[Partition]().assign(partitions("t", 200), dict.fromkeys(range(4), 0))
    assert min(Counter(chosen).values()) > 30


def test_round_robin_prefers_readers_with_the_fewest_splits() -> None:
    assert RoundRobinSplitAssigner().assign(partitions("t", 5), {0: 2, 1: 0, 2: 1}) == [1, 1, 2, 0, 1]


def test_invalid_state_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="is not the state of an AssigningEnumerator"):
        AssignmentStateSerializer(DataclassSerializer(Partition)).from_json({"owners": {}})
