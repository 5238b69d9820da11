"""The report of a job: tables with ratios, targets and versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.common.machine import machine
from benchmarks.common.report import Cell, Report
from benchmarks.common.rows import Row
from benchmarks.peers.roster import DSV2, PLAIN, Job, Target

__all__ = ("standings",)

_KINDS = ("tuple", "dataclass", "dict")

_HEADER = (
    "contestant",
    "records/s",
    "µs per record",
    "records a batch",
    "ms per batch",
    "spread",
    "dsv2 / it",
    "dsv2 / it, range of rounds",
    "of the plain loop",
    "of the plain loop, range of rounds",
    "results",
)


def standings(job: Job, rows: Sequence[Row], command: str) -> Report:
    """Create the report from all measurements of a job."""
    report = Report(job.name, job.title, _conditions(rows, command))
    settings = {(row.processor, row.size, row.kind, row.keys): list[Row]() for row in rows}
    for row in _in_order(job, rows):
        settings[row.processor, row.size, row.kind, row.keys].append(row)
    ordered = sorted(settings.items(), key=lambda setting: (-setting[0][1], _KINDS.index(setting[0][2])))
    for (processor, size, kind, keys), own in ordered:
        title = f"{keys:,} keys, records of kind {kind}, batches of {size:,}, {processor}"
        report.table(title, _HEADER, [_cells(job, row, own) for row in own])
    for (processor, size, kind, keys), own in settings.items():
        for target in job.targets:
            if (kind, keys) == (job.kinds[0], target.keys):
                _judge(report, job, target, f"batches of {size:,}, {processor}", own)
    missing = ((f"{row.contestant}, {row.keys:,} keys", row.missing) for row in rows if row.missing)
    if absent := [*job.absent, *dict.fromkeys(missing)]:
        report.table("Not measured", ("contestant", "why"), absent)
    versions = {row.contestant: row.versions for row in _in_order(job, rows) if row.versions}
    packages = [(name, ", ".join(map(" ".join, found.items()))) for name, found in versions.items()]
    if packages:
        report.table("Versions", ("contestant", "packages"), packages)
    return report


def _judge(report: Report, job: Job, target: Target, where: str, rows: Sequence[Row]) -> None:
    ours, theirs = _best(job, rows, target.ours), _best(job, rows, target.group)
    if not ours or not theirs:
        return
    claim = f"{target.keys:,} keys, {where}: {target.ours}"
    if target.pace < theirs.pace * target.times:
        report.at_least(f"{claim}, records/s", ours.pace, target.pace)
    else:
        times = ours.ratios(theirs).median
        report.at_least(f"{claim} in times of {target.group}, fastest set-up", times, target.times)


def _in_order(job: Job, rows: Iterable[Row]) -> list[Row]:
    """Sort rows in the order of the job's contestants. Rows of removed contestants are omitted."""
    names = [contestant.name for contestant in job.contestants]
    return sorted((row for row in rows if row.contestant in names), key=lambda row: names.index(row.contestant))


def _cells(job: Job, row: Row, others: Sequence[Row]) -> tuple[Cell, ...]:
    if not row.seconds:
        return (row.contestant, *[""] * (len(_HEADER) - 1))
    ours, plain = (_best(job, others, group) for group in (DSV2, PLAIN))
    return (
        row.contestant,
        round(row.pace),
        1e6 / row.pace,
        row.records,
        round(row.sample.median * 1000),
        row.sample.spread,
        *_compared(ours, row),
        *_compared(row, plain),
        row.results,
    )


def _compared(one: Row | None, other: Row | None) -> tuple[Cell, Cell]:
    """The median and the range of the ratios of the rounds."""
    if one is None or other is None:
        return "", ""
    ratios = one.ratios(other)
    several = len(ratios.seconds) > 1
    return ratios.median, f"{min(ratios.seconds):.2f} – {max(ratios.seconds):.2f}" if several else ""


def _best(job: Job, rows: Iterable[Row], group: str) -> Row | None:
    names = {contestant.name for contestant in job.contestants if contestant.group == group}
    found = [row for row in rows if row.contestant in names and row.seconds]
    return max(found, key=lambda row: row.pace, default=None)


def _conditions(rows: Iterable[Row], command: str) -> dict[str, str]:
    measured = [row for row in rows if row.seconds]
    dates = sorted(row.date for row in measured) or [""]
    loads = [row.load for row in measured]
    return {
        "date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} – {dates[-1]}",
        "command": command,
        **machine(),
        "processor": ", ".join(sorted({row.processor for row in measured})),
        "rounds": ", ".join(map(str, sorted({len(row.paces) for row in measured}))),
        "batches measured": ", ".join(map(str, sorted({len(row.seconds) for row in measured}))),
        "load average before": f"{min(loads):.2f} – {max(loads):.2f}" if loads else "",
    }
