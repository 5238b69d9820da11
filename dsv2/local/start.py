"""The start of a local job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv2.base.clock import Clock
from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.dead_letters.store import LetterWriter
from dsv2.graph import Plan
from dsv2.jobs.configuration import Section
from dsv2.jobs.handle import Trigger
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.control import JobControl
from dsv2.local.restoration import LocalStart
from dsv2.runtime.report.job_listeners import JobListeners


@dataclass(frozen=True)
class JobStart:
    """The parts of one run of a job that its runtime has prepared.

    Attributes:
        plan: The plan.
        begun: Where the run begins.
        checkpoint: The checkpoint. None: there is none.
        letters: Writes the dead letters that nothing reads.
        unblocking: What the checkpoint remembers of records to skip. None: there is no checkpoint.
        seed: The seed of the interleaving of channels.
        sizes: The sizes of micro-batches, in records per source subtask. The last size repeats. Empty: no limit.
        fast: Whether the checks are disabled.
        clock: The wall clock.
        trigger: When micro-batches begin.
        configuration: All settings of the job, for its checkpoint.
        control: The requests to the job.
        listeners: Receive the progress.
    """

    plan: Plan
    begun: LocalStart
    checkpoint: LocalCheckpoint | None
    letters: LetterWriter
    unblocking: Unblocking | None
    seed: int
    sizes: Sequence[int]
    fast: bool
    clock: Clock
    trigger: Trigger
    configuration: tuple[Section, ...]
    control: JobControl
    listeners: JobListeners
