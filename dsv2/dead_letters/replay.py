"""Which letters a job has processed again, and which it has to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dsv2.dead_letters.letter import StoredLetter
from dsv2.dead_letters.store import JobLetters
from dsv2.errors import CorruptDataError, Dsv2Error, IncompatibleCheckpointError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.data_types import DataTypes
from dsv2.runtime.serde.stand_ins import StandIns
from dsv2.runtime.state.replay_rows import ReplayPlace, replayed_record
from dsv2.runtime.state.rows import RowKind, StateRow

__all__ = ("PendingReplay", "Replays", "check_replays", "pending_replay", "replay_rows")

WITHDRAW = "dsv2 dead-letters replay --withdraw"


@dataclass(frozen=True)
class Replays:
    """What a job has processed again. Part of its state, so that nothing is processed again twice.

    Attributes:
        requests: The names of the requests that are done.
        letters: The ids of the letters.
    """

    requests: Sequence[str] = field(default_factory=list)
    letters: Sequence[str] = field(default_factory=list)

    def with_more(self, requests: Iterable[str], letters: Iterable[str]) -> Replays:
        """Return these and further ones."""
        return Replays([*self.requests, *requests], [*self.letters, *letters])


@dataclass(frozen=True)
class PendingReplay:
    """Requests that a start of the job has to fulfil.

    Attributes:
        requests: Their names.
        letters: The letters that are processed again, in order.
        dropped: The ids of the other letters: there is no such letter any more, its micro-batch is not complete, or it
            has been processed again for another request.
    """

    requests: Sequence[str]
    letters: Sequence[StoredLetter]
    dropped: Sequence[str]

    def rows(self, key: bytes | None) -> list[tuple[str, StateRow]]:
        """Return the rows for a savepoint, see ``replay_rows``."""
        return replay_rows(self.letters, key)


def pending_replay(letters: JobLetters, done: Replays, first_batch: int) -> PendingReplay | None:
    """Return the requests that are not done; None if there are none.

    Args:
        letters: The letters of the job.
        done: What the job has processed again.
        first_batch: The micro-batch with which the job continues. The records of its letters are read again.

    Raises:
        CorruptDataError: A file is damaged.
    """
    pending = [request for request in letters.requests() if request.name not in done.requests]
    if not pending:
        return None
    wanted = dict.fromkeys(letter for request in pending for letter in request.letters)
    of_wanted = {letter.partition(".")[0] for letter in wanted}
    batches = [batch_id for batch_id in letters.batches() if batch_id < first_batch and str(batch_id) in of_wanted]
    before = set(done.letters)
    chosen = [
        letter
        for letter in letters.letters(batches)
        if letter.id in wanted and letter.id not in before and letter.obstacle is None
    ]
    found = {letter.id for letter in chosen}
    return PendingReplay([request.name for request in pending], chosen, [one for one in wanted if one not in found])


def replay_rows(letters: Iterable[StoredLetter], key: bytes | None) -> list[tuple[str, StateRow]]:
    """Return the rows of a savepoint by which letters are processed again, each with the uid of its operator.

    Args:
        letters: The letters, which have records, in the order in which they are to be processed.
        key: The key of the job, if its state is signed.

    Raises:
        CorruptDataError: A letter was changed, or is signed with another key.
    """
    codec = Codec(StandIns(), key)
    rows = []
    for order, letter in enumerate(letters):
        assert letter.input is not None
        assert letter.payload is not None
        payload = bytes(codec.unwrap(BlobKind.LETTER, letter.payload, str(letter)))
        rows.append(
            (letter.operator, ReplayPlace(letter.input, order, letter.parallelism).row(letter.subtask, payload))
        )
    return rows


def check_replays(
    plan: Plan, rows: Iterable[tuple[str, StateRow]], types: DataTypes, ended: Collection[str] = ()
) -> None:
    """Check before a start that a program can process letters again.

    Args:
        plan: The program.
        rows: The rows of kind ``REPLAY``, each with the uid of its operator.
        types: The classes of the program.
        ended: The uids of the sources that have ended.

    Raises:
        IncompatibleCheckpointError: It cannot; the message lists the problems by operator.
    """
    operators = {operator.uid: operator for operator in plan.operators}
    codec = Codec(types)
    problems: dict[str, None] = {}
    for uid, row in rows:
        if row.kind is RowKind.REPLAY and (problem := _problem(plan, operators, uid, row, codec, ended)) is not None:
            problems[problem] = None
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
    if ended and _sources_of(plan, operator.id) <= set(ended):
        return f"{where} has received the end of its input"
    return None


def _sources_of(plan: Plan, operator_id: int) -> set[str]:
    """The uids of the sources whose records reach an operator."""
    reached, left = set[int](), [operator_id]
    while left:
        if (current := left.pop()) not in reached:
            reached.add(current)
            left += [edge.source for edge in plan.edges_into[current]]
    operators = (plan.operators[one] for one in reached)
    return {operator.uid for operator in operators if operator.kind is OperatorKind.SOURCE}
