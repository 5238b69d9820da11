"""Replay bookkeeping: done and pending letters."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from dsv2.dead_letters.letter import StoredLetter
from dsv2.dead_letters.letter_ids import LetterIds, compacted
from dsv2.dead_letters.store import JobLetters
from dsv2.errors import CorruptDataError, Dsv2Error, IncompatibleCheckpointError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.sources.offsets import ReplayedValue, SourceOffset, replays_in
from dsv2.runtime.state.replay_rows import ReplayPlace, replayed_record
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.sources import Source

_LOG = logging.getLogger(__name__)
WITHDRAW = "dsv2 dead-letters replay --withdraw"


@dataclass(frozen=True)
class Replays:
    """The replays that a job has done. Part of its state, so that no letter is replayed twice.

    Attributes:
        requests: The names of requests that are done. Older ones are recognized by their letters.
        letters: The letters, as entries of ``LetterIds``.
    """

    requests: Sequence[str] = field(default_factory=list)
    letters: Sequence[str] = field(default_factory=list)

    def with_more(self, requests: Iterable[str], letters: Iterable[str]) -> Replays:
        """Return these and further ones."""
        return Replays([*self.requests, *requests], [*self.letters, *letters])

    def compacted(self, letters: JobLetters) -> Replays:
        """Return the same in fewer entries. ``letters``: The letters of the job."""

        def letters_of(batch_id: int) -> list[str]:
            return [letter.id for letter in letters.letters([batch_id]) if letter.obstacle is None]

        found = compacted(self.letters, letters.batches(), letters_of)
        ids, names = LetterIds(found), set(self.requests)
        needed = [
            request.name
            for request in letters.requests()
            if request.name in names and not all(letter in ids for letter in request.letters)
        ]
        return Replays(needed, found)


@dataclass(frozen=True)
class PendingReplay:
    """Requests that a start of the job has to fulfil.

    Attributes:
        before: What the job has processed again so far.
        requests: Their names.
        letters: The letters that are processed again, in order.
        dropped: The ids of the other letters: there is no such letter any more, its micro-batch is not complete, or it
            has been processed again for another request.
    """

    before: Replays
    requests: Sequence[str]
    letters: Sequence[StoredLetter]
    dropped: Sequence[str]

    @property
    def after(self) -> Replays:
        """The replays of the job once these are done."""
        return self.before.with_more(self.requests, [letter.id for letter in self.letters])

    def rows(self, key: bytes | None) -> list[tuple[str, StateRow]]:
        """Return the rows for a savepoint, see ``replay_rows``."""
        return replay_rows(self.letters, key)

    def values(self, key: bytes | None) -> dict[str, list[ReplayedValue]]:
        """Return the values that sources decode again, see ``replayed_values``."""
        return replayed_values(self.letters, key)


def pending_replay(letters: JobLetters, done: Replays, first_batch: int) -> PendingReplay | None:
    """Return the requests that are not done; None if there are none. Warns of letters that are not processed again.

    Args:
        letters: The letters of the job.
        done: What the job has processed again.
        first_batch: The micro-batch with which the job continues. The records of its letters are read again.

    Raises:
        CorruptDataError: A file is damaged.
    """
    before = LetterIds(done.letters)
    pending = [
        request
        for request in letters.requests()
        if request.name not in done.requests and not all(letter in before for letter in request.letters)
    ]
    if not pending:
        return None
    wanted = dict.fromkeys(letter for request in pending for letter in request.letters)
    of_wanted = {letter.partition(".")[0] for letter in wanted}
    batches = [batch_id for batch_id in letters.batches() if batch_id < first_batch and str(batch_id) in of_wanted]
    chosen = [
        letter
        for letter in letters.letters(batches)
        if letter.id in wanted and letter.id not in before and letter.obstacle is None
    ]
    found = {letter.id for letter in chosen}
    if dropped := [one for one in wanted if one not in found]:
        _LOG.warning(
            "%s: dead letters that are not processed again, because their micro-batch is repeated, they were processed "
            "again already, or they no longer exist: %s",
            letters.path,
            ", ".join(dropped),
        )
    return PendingReplay(done.compacted(letters), [request.name for request in pending], chosen, dropped)


def replay_rows(letters: Iterable[StoredLetter], key: bytes | None) -> list[tuple[str, StateRow]]:
    """Return the rows of a savepoint by which letters are processed again, each with the uid of its operator.

    Args:
        letters: The letters, which have records, in the order in which they are to be processed. Those of sources have
            no rows, because sources keep no state but their position.
        key: The key of the job, if its state is signed.

    Raises:
        CorruptDataError: A letter was changed, or is signed with another key.
    """
    return [
        (letter.operator, ReplayPlace(letter.input, order, letter.parallelism).row(letter.subtask, payload))
        for order, (letter, payload) in enumerate(_payloads(letters, key))
        if letter.input is not None
    ]


def replayed_values(letters: Iterable[StoredLetter], key: bytes | None) -> dict[str, list[ReplayedValue]]:
    """Return the values that sources decode again, by the uid of the source. Parameters as for ``replay_rows``."""
    values: dict[str, list[ReplayedValue]] = {}
    for letter, payload in _payloads(letters, key):
        if letter.input is None:
            assert letter.position is not None
            split, offset = letter.position["split"], letter.position["offset"]
            values.setdefault(letter.operator, []).append(
                ReplayedValue(letter.id, letter.subtask, split, offset, payload)
            )
    return values


def _payloads(letters: Iterable[StoredLetter], key: bytes | None) -> Iterator[tuple[StoredLetter, bytes]]:
    codec = Codec(StandIns(), key)
    for letter in letters:
        assert letter.payload is not None
        yield letter, bytes(codec.unwrap(BlobKind.LETTER, letter.payload, str(letter)))


def check_replays(
    plan: Plan,
    rows: Iterable[tuple[str, StateRow]],
    types: DataTypes,
    ended: Collection[str] = (),
    offsets: Mapping[str, SourceOffset] = MappingProxyType({}),
) -> None:
    """Check before a start that a program can process letters again.

    Args:
        plan: The program.
        rows: The rows of kind ``REPLAY``, each with the uid of its operator.
        types: The classes of the program.
        ended: The uids of the sources that have ended.
        offsets: Where sources continue, by uid, with the values that they decode again.

    Raises:
        IncompatibleCheckpointError: It cannot; the message lists the problems by operator.
    """
    operators = {operator.uid: operator for operator in plan.operators}
    codec = Codec(types)
    problems: dict[str, None] = {}
    for uid, row in rows:
        if row.kind is RowKind.REPLAY and (problem := _problem(plan, operators, uid, row, codec, ended)) is not None:
            problems[problem] = None
    for uid, offset in offsets.items():
        problems |= dict.fromkeys(_problems_of_source(operators.get(uid), uid, offset, codec))
    if problems:
        raise IncompatibleCheckpointError(
            "The program cannot process dead letters again:\n"
            + "\n".join(f"  {problem}" for problem in problems)
            + f"\nChange the program, or withdraw the request: {WITHDRAW}."
        )


def _problem(
    plan: Plan,
    operators: Mapping[str, Operator],
    uid: str,
    row: StateRow,
    codec: Codec,
    ended: Collection[str],
) -> str | None:
    operator = operators.get(uid)
    if operator is None or operator.kind in (OperatorKind.SOURCE, OperatorKind.SINK):
        return f"operator {uid!r} no longer exists, or has another uid"
    where = f"{operator}, defined at {operator.location}"
    try:
        place = ReplayPlace.of(row, "A dead letter")
        if place.input >= len(operator.input_keys):
            return f"{where}, no longer has an input {place.input}"
        replayed_record(row, codec, "a record")
    except (CorruptDataError, Dsv2Error) as error:
        return f"{where}: {error}"
    is_broadcast = operator.kind is OperatorKind.TWO_INPUT_BROADCAST and place.input == 1
    if is_broadcast and operator.parallelism != place.parallelism:
        return (
            f"{where}: a broadcast record failed in each of {place.parallelism} subtasks, and the parallelism is now "
            f"{operator.parallelism}. Start once with the former parallelism"
        )
    before = {one.uid for one in plan.upstream_of(operator) if one.kind is OperatorKind.SOURCE}
    if ended and before <= set(ended):
        return f"{where} has received the end of its input"
    return None


def _problems_of_source(operator: Operator | None, uid: str, offset: SourceOffset, codec: Codec) -> Iterator[str]:
    if not (values := replays_in(offset)):
        return
    source = None if operator is None else operator.body
    if not isinstance(source, Source) or "readers" not in offset:
        yield f"source {uid!r} no longer exists, or has another uid"
        return
    assert operator is not None
    where = f"{operator}, defined at {operator.location}"
    if all(reader["ended"] is not None for reader in offset["readers"]):
        yield f"{where} has read its input to the end"
        return
    for value in values:
        try:
            raw, _ = codec.loads(value.payload, f"Letter {value.letter}")
            source.decode_again(raw, value.split)
        except NotImplementedError:
            yield f"{where}, a {type(source).__name__}, does not define decode_again"
        except (Dsv2Error, OSError) as error:
            yield f"{where}: {error}"
