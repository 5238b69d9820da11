"""Soak: runs one job for a long time and samples its memory, open files, files on disk and batch times.

The medians of the second and the last quarter of the run are compared to detect growth. The first quarter is ignored,
because processes start, code is compiled and caches fill.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.report import Report
from dsv2.base.folders import LocalFolder
from storms.common.command import Arguments, conditions
from storms.common.folders import scratch_folder
from storms.common.processes import JobProcess, children_of_session
from storms.common.results import Result, Results
from storms.jobs import endless

__all__ = ("Sample", "growth", "main")

NAME = "soak"
SHORT = {"minutes": 0.3, "every": 1.0}
LIMITS = {
    "jvm_mb": 1.5,  # the heap is bounded, but grows slowly to its limit
    "driver_mb": 1.1,
    "workers_mb": 1.1,
    "planners_mb": 1.1,
    "open_files": 1.2,
    "checkpoint_files": 1.5,
    "batch_ms": 1.5,
}
"""The maximum growth factor of each measure."""
LOCAL_LIMITS = {
    "driver_mb": 1.1,
    "open_files": 1.2,
    "checkpoint_files": 1.2,
    "checkpoint_mb": 1.5,
    "delay_ms": 1.5,
    "batch_ms": 1.5,
}
"""The same on the local runtime, whose output has a merged file for every five seconds."""
_MB = 1024 * 1024
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Sample(Result):
    """One sample. ``name``: the seconds since the start of the job."""

    batches: int
    batch_ms: float
    jvm_mb: float
    driver_mb: float
    workers_mb: float
    planners_mb: float
    open_files: int
    checkpoint_files: int
    output_files: int
    local_files: int
    checkpoint_mb: float = 0.0
    delay_ms: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if a measure grows or the output is wrong."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--minutes", type=float, default=60, help="duration (60)")
    add("--every", type=float, default=15, metavar="SECONDS", help="time between samples (15)")
    add("--layout", choices=("blob", "map"), default="blob", help="state layout (blob)")
    add("--runtime", choices=("spark", "local"), default="spark", help="runtime of the job (spark)")
    add("--rate", type=float, help="records per second (500 on Spark, 10,000 on the local runtime)")
    options = parser.parse(arguments, SHORT)
    is_local = options.runtime == "local"
    rate = options.rate or (10_000 if is_local else 500)
    minutes = options.minutes if options.limit is None else min(options.minutes, options.limit)
    samples = Results(options.results, name_of(options.runtime), Sample, again=True)
    launcher = "storms.common.launch_locally" if is_local else "storms.common.launch"
    with scratch_folder() as folder:
        command = ["-m", launcher, endless.__name__, str(folder), options.layout, str(rate)]
        with JobProcess(folder, command) as job:
            job.start()
            job.wait_until(lambda: batches_of(job) > 0)
            for sample in watch(job, minutes * 60, options.every):
                samples.add(sample)
        committed = job.batches("commits")
        difference = endless.difference_of_published(folder) if is_local else endless.difference(folder, committed)
    report = describe([*samples], difference, options.seed, options.runtime)
    report.publish(options.results)
    grows = not all(verdict.met for verdict in report.verdicts)
    return int(bool(difference) or (grows and not options.short))  # a short run consists of warm-up only


def name_of(runtime: str) -> str:
    """Return the name of the report."""
    return NAME if runtime == "spark" else f"{NAME}-{runtime}"


def batches_of(job: JobProcess) -> int:
    """Return the number of micro-batches of a job on either runtime."""
    return job.batches("commits") or endless.delay(job.folder)[0]


def watch(job: JobProcess, seconds: float, every: float) -> Iterator[Sample]:
    """Yield samples of the running job. Raises ``JobOverError`` if it ends."""
    begun = now = last = time.monotonic()
    batches = batches_of(job)
    while now - begun < seconds:
        until = now + every
        job.wait_until(lambda until=until: time.monotonic() >= until)  # type: ignore[misc]
        now, done = time.monotonic(), batches_of(job)
        if done > batches:  # otherwise the micro-batch takes longer than the interval
            yield sample(job, now - begun, done, (now - last) / (done - batches) * 1000)
            last, batches = now, done


def sample(job: JobProcess, at: float, batches: int, batch_ms: float) -> Sample:
    """Take a sample of the job."""
    memory = {"jvm": 0.0, "driver": 0.0, "workers": 0.0, "planners": 0.0}
    open_files = 0
    for process, command in children_of_session(job.pid):
        if process == job.pid:
            kind = "driver"
            open_files = open_files or _entries(Path(f"/proc/{process}/fd"))  # those of a JVM, if there is one
        elif "java" in command.split(" ")[0]:
            kind = "jvm"
            open_files = _entries(Path(f"/proc/{process}/fd"))
        else:
            kind = "planners" if "python_streaming_source_runner" in command else "workers"
        memory[kind] += _resident_mb(process)
    return Sample(
        name=f"{at:.0f}",
        batches=batches,
        batch_ms=round(batch_ms, 1),
        jvm_mb=round(memory["jvm"], 1),
        driver_mb=round(memory["driver"], 1),
        workers_mb=round(memory["workers"], 1),
        planners_mb=round(memory["planners"], 1),
        open_files=open_files,
        checkpoint_files=_files(job.folder / "checkpoint"),
        output_files=_files(job.folder / "counted"),
        local_files=_files(job.folder / "spark-local"),
        checkpoint_mb=round(_size_mb(job.folder / "checkpoint"), 1),
        delay_ms=round(endless.delay(job.folder)[1], 1),
    )


def _resident_mb(process: int) -> float:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE / _MB
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0  # the process has ended


def _entries(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir())


def _files(folder: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(folder))


def _size_mb(folder: Path) -> float:
    return sum(LocalFolder(str(folder)).tree("").values()) / _MB


def growth(samples: Sequence[Sample], measure: str) -> float:
    """The ratio of a measure's median in the last quarter to that in the second quarter."""
    values = [float(getattr(sample, measure)) for sample in samples]
    quarter = max(1, len(values) // 4)
    before = statistics.median(values[quarter : 2 * quarter] or values[:1])
    return statistics.median(values[-quarter:]) / before if before else 1.0


def describe(samples: Sequence[Sample], difference: str, seed: int, runtime: str = "spark") -> Report:
    """Create the report, with some of the samples and the growth of each measure."""
    report = Report(name_of(runtime), "Soak", conditions(f"{NAME} --runtime {runtime}", seed))
    names = [name for name in Sample.__dataclass_fields__ if name != "name"]
    some = samples[:: max(1, len(samples) // 12)]
    rows = [(int(one.name), *(getattr(one, name) for name in names)) for one in some]
    report.table("Samples", ("s", *(name.replace("_", " ") for name in names)), rows)
    report.table(
        "Output", ("files", "records"), [("all micro-batches", difference or "each number once, counted right")]
    )
    for measure, limit in (LIMITS if runtime == "spark" else LOCAL_LIMITS).items():
        report.at_most(f"growth of {measure.replace('_', ' ')}", growth(samples, measure), limit)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import soak

    sys.exit(soak.main())
