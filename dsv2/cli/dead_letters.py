"""``dsv2 dead-letters``: shows the stored dead letters of jobs, and requests that they are processed again."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from dsv2.base.printable import printable
from dsv2.cli.command import Report, add_command, add_group, add_report_options, session_for, table
from dsv2.dead_letters import DeadLetters, LetterStatus, StoredLetter
from dsv2.errors import ConfigurationError

_NOTHING_FOUND = 1
_SHOWN = 50


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    commands = add_group(groups, "dead-letters", "show dead letters, and process them again")
    show = add_command(
        commands,
        "show",
        "list dead letters and count them by operator and error",
        "dead-letters show /data/orders --error ValueError",
        "dead-letters show /data/orders 12.0",
        description="List dead letters that nothing in their job reads. With ids, show all of each letter.",
    )
    replay = add_command(
        commands,
        "replay",
        "process dead letters again at the next start of their job",
        "dead-letters replay /data/orders --operator totals --since 2027-01-31",
        "dead-letters replay /data/orders --all",
        description="Request that the job processes dead letters again, each once, at its next start.",
    )
    for command, run in ((show, _show), (replay, _replay)):
        command.add_argument("path", help="the checkpoint_location of the job, or the folder of its dead letters")
        _add_filters(command)
        add_report_options(command, run)
    show.add_argument("--limit", type=int, default=_SHOWN, help=f"the number of letters to list (default: {_SHOWN})")
    replay.add_argument("--all", action="store_true", help="all letters")
    replay.add_argument("--withdraw", action="store_true", help="withdraw the requests that no start has fulfilled")


def _add_filters(command: argparse.ArgumentParser) -> None:
    """Add the options that choose letters."""
    command.add_argument("ids", nargs="*", help="ids, or their beginning: 12 for micro-batch 12, 12.0 for one letter")
    command.add_argument("--operator", metavar="UID", help="only letters of this operator")
    command.add_argument(
        "--error", metavar="CLASS", help="only letters of this class of exceptions, such as ValueError"
    )
    command.add_argument(
        "--since", type=_time, metavar="TIME", help="only later letters: 2027-01-31 or 2027-01-31T12:00"
    )
    command.add_argument("--until", type=_time, metavar="TIME", help="only earlier letters")


def _time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 2027-01-31T12:00") from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)


def open_letters(path: str, arguments: argparse.Namespace) -> DeadLetters:
    """Open the letters at a path, with Spark if it is not on the local disk."""
    return DeadLetters.open(path, spark=session_for(path, arguments))


def _chosen(letters: DeadLetters, arguments: argparse.Namespace) -> list[StoredLetter]:
    """Return the letters that the arguments choose.

    Raises:
        ConfigurationError: An id is that of no letter.
    """
    found = letters.letters
    if arguments.ids:
        by_id = {given: [letter for letter in found if _has_id(letter, given)] for given in arguments.ids}
        if missing := [given for given, of_id in by_id.items() if not of_id]:
            raise ConfigurationError(f"There is no letter {', '.join(missing)}. List them with dsv2 dead-letters show.")
        wanted = {id(letter) for of_id in by_id.values() for letter in of_id}
        found = [letter for letter in found if id(letter) in wanted]
    return [letter for letter in found if _matches(letter, arguments)]


def _has_id(letter: StoredLetter, given: str) -> bool:
    return f"{letter.id}.".startswith(f"{given.rstrip('.')}.")


def _matches(letter: StoredLetter, arguments: argparse.Namespace) -> bool:
    return (
        arguments.operator in (None, letter.operator)
        and arguments.error in (None, letter.error_type, letter.error_type.rpartition(".")[2])
        and (arguments.since is None or letter.time >= arguments.since)
        and (arguments.until is None or letter.time <= arguments.until)
    )


def _show(arguments: argparse.Namespace) -> Report:
    letters = open_letters(arguments.path, arguments)
    found = _chosen(letters, arguments)
    data = [{**asdict(letter), "status": letters.status(letter).value} for letter in found]
    if arguments.ids:
        text = [line for letter in found for line in (*_described(letters, letter), "")][:-1]
    else:
        text = _listed(letters, found, arguments.limit)
    return Report(text, {"counts": _counts(letters, found), "letters": data}, 0 if found else _NOTHING_FOUND)


def _listed(letters: DeadLetters, found: Sequence[StoredLetter], limit: int) -> list[str]:
    if not letters.job_names:
        return ["There are no letters below this checkpoint. If the job has dead_letters=..., give that folder."]
    several = len(letters.job_names) > 1
    rows = [
        {
            "id": letter.id,
            **({"job": letter.job_id} if several else {}),
            "time": _shown_time(letter.time),
            "operator": letter.operator,
            "callback": letter.callback,
            "record": letter.record,
            "error": f"{letter.error_type}: {letter.error_message}",
            "status": letters.status(letter).value,
        }
        for letter in found[:limit]
    ]
    more = [f"... and {len(found) - limit} more letters"] if len(found) > limit else []
    return [*table(rows), *more, "", *table(_counts(letters, found))]


def _counts(letters: DeadLetters, found: Sequence[StoredLetter]) -> list[dict[str, Any]]:
    counted = Counter((letter.operator, letter.error_type, letters.status(letter)) for letter in found)
    groups = sorted({(operator, error) for operator, error, _ in counted})
    return [
        {
            "operator": operator,
            "error": error,
            "letters": sum(counted[operator, error, status] for status in LetterStatus),
            **{status.value: counted[operator, error, status] for status in LetterStatus},
        }
        for operator, error in groups
    ]


def _described(letters: DeadLetters, letter: StoredLetter) -> list[str]:
    status = letters.status(letter)
    note = f" ({letter.obstacle})" if letter.obstacle else ""
    position = letter.position or {}
    lines = {
        "job": f"{letters.job_names[letter.job_id]} ({letter.job_id})",
        "time": _shown_time(letter.time),
        "operator": f"{letter.operator} (subtask {letter.subtask}), defined at {letter.location}",
        "callback": letter.callback,
        "key": letter.key,
        "record": letter.record,
        "timestamp": letter.timestamp,
        "position": ", ".join(f"{name} {value!r}" for name, value in position.items()) or None,
        "status": f"{status.value}{note}",
        "error": f"{letter.error_type}: {letter.error_message}",
    }
    shown = [f"  {name + ':':<10} {printable(str(value))}" for name, value in lines.items() if value is not None]
    return [f"Letter {letter.id}", *shown, *(f"  {line}" for line in letter.traceback.rstrip().splitlines())]


def _shown_time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")


def _replay(arguments: argparse.Namespace) -> Report:
    letters = open_letters(arguments.path, arguments)
    if arguments.withdraw:
        count = letters.withdraw_replays()
        return Report([f"Requests for {_number(count)} were withdrawn."], {"withdrawn": count}, 0 if count else 1)
    chooses = arguments.all or arguments.ids or arguments.operator or arguments.error
    if not (chooses or arguments.since or arguments.until):
        raise ConfigurationError("Choose letters: ids, --operator, --error, --since, --until or --all.")
    found = _chosen(letters, arguments)
    by_status = {status: [letter for letter in found if letters.status(letter) is status] for status in LetterStatus}
    new = found if arguments.ids else by_status[LetterStatus.NEW]  # one that was named explicitly must be new
    letters.request_replay(new)
    text = [f"{_number(len(new))} will be processed again when the job starts the next time."]
    if not arguments.ids:
        for status in (LetterStatus.REQUESTED, LetterStatus.REPLAYED, LetterStatus.LOST):
            text += [f"{_number(len(by_status[status]))}: {status.value}." for _ in by_status[status][:1]]
    data = {"requested": [letter.id for letter in new]}
    return Report(text, data, 0 if new else _NOTHING_FOUND)


def _number(count: int) -> str:
    return f"{count} letter" if count == 1 else f"{count} letters"
