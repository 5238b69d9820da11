"""The options of ``execute``, and their checks."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from os import PathLike
from typing import TYPE_CHECKING, Literal, TypedDict

from dsv2.checks.arguments import as_choice
from dsv2.errors import ConfigurationError
from dsv2.jobs.handle import OnChange, RunOptions, Trigger

if TYPE_CHECKING:
    from dsv2.jobs.dashboard_settings import Dashboard  # loaded with a dashboard only


class JobOptions(TypedDict, total=False):
    """The options of ``ExecutionEnvironment.execute`` and ``execute_async``.

    Attributes:
        checkpoint_location: Where a streaming job stores its checkpoints. A restart with the same location resumes the
            job. Required on Spark.
        trigger: When micro-batches run. Default: ``Trigger.available_now()`` if all sources are bounded, otherwise
            ``Trigger.processing_time()``.
        allow_dropped_state: Whether the checkpoint or savepoint may have operators, states or function fields that the
            program does not use, for example after they were renamed. False (default) refuses to start, True drops them
            with a ``DroppedStateWarning`` (Flink ``--allowNonRestoredState``).
        savepoint: A savepoint to start from, instead of empty state. On Spark, ``checkpoint_location`` must then be
            new, or have been started from the same savepoint.
        as_new_job: Whether the job started from ``savepoint`` is another job, which needs sinks of its own. False
            (default): it continues the job, so sinks continue where the savepoint was taken, and exactly-once sinks
            stay exactly-once.
        continued_sources: The uids of streaming DataFrames whose options you have set so that they start at their
            position in the savepoint. dsv2 sets the positions of its own sources itself.
        on_change: What a restart does if the program has changed in a way that its checkpoint cannot continue with, but
            a savepoint can. "migrate" (default) takes a savepoint of the checkpoint and continues with it in the same
            ``checkpoint_location``. "refuse" raises ``IncompatibleCheckpointError``, which lists the changes. No other
            change is ever migrated.
        dead_letters: The folder for dead letters that nothing in the program reads (``ErrorPolicy.dead_letter``).
            Default: ``dead-letters`` below ``checkpoint_location``. Several jobs may share a folder.
        skip_records: Records that the job must not process, once: by the uid or name of the source, a list of pairs of
            split and offset, as the error of a failed micro-batch shows them. The request is stored in the checkpoint,
            and holds until the micro-batch that skips the record is complete, in later runs too. An empty list
            withdraws the requests for the source that no micro-batch has fulfilled.
        trace_records: Whether records carry their position in the source, so that errors behind an exchange and dead
            letters name it. This makes the job slower. On Spark a micro-batch that is repeated after it failed is
            always traced. Default: False.
        dashboard: The port of a web page that shows the job, or a ``Dashboard`` with more settings. It needs the extra
            ``dsv2[dashboard]``, and ends with the program. None (default): no page.
    """

    checkpoint_location: str | PathLike[str] | None
    trigger: Trigger | None
    allow_dropped_state: bool
    savepoint: str | PathLike[str] | None
    as_new_job: bool
    continued_sources: Collection[str]
    on_change: OnChange | Literal["migrate", "refuse"]
    dead_letters: str | PathLike[str] | None
    skip_records: Mapping[str, Collection[tuple[int | str, int | str]]] | None
    trace_records: bool
    dashboard: int | Dashboard | None


def run_options(options: JobOptions) -> RunOptions:
    """Check options, but for those that concern the plan or the environment.

    Raises:
        ConfigurationError: An option is unknown or invalid.
    """
    known = JobOptions.__annotations__
    for name in options:
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"Did you mean {near[0]!r}?" if near else f"The options are {', '.join(known)}."
            raise ConfigurationError(f"execute has no option {name!r}. {meant}")
    trigger, savepoint = options.get("trigger"), _path("savepoint", options.get("savepoint"))
    as_new_job = options.get("as_new_job", False)
    on_change = as_choice(OnChange, options.get("on_change", OnChange.MIGRATE), "on_change")
    sources, letters = options.get("continued_sources", ()), _path("dead_letters", options.get("dead_letters"))
    if trigger is not None and not isinstance(trigger, Trigger):
        raise ConfigurationError(f"trigger must be a Trigger, such as Trigger.available_now(), not {trigger!r}.")
    if as_new_job and savepoint is None:
        raise ConfigurationError("as_new_job=True requires savepoint=..., from which the new job starts.")
    if letters == "":
        raise ConfigurationError("dead_letters is the path of a folder, not an empty string.")
    if isinstance(sources, str) or not isinstance(sources, Collection):
        raise ConfigurationError(f"continued_sources is a list of uids, not {sources!r}.")
    return RunOptions(
        checkpoint_location=_path("checkpoint_location", options.get("checkpoint_location")),
        trigger=trigger,
        allow_dropped_state=options.get("allow_dropped_state", False),
        savepoint=savepoint,
        as_new_job=as_new_job,
        continued_sources=frozenset(sources),
        on_change=on_change,
        dead_letters=letters,
        trace_records=options.get("trace_records", False),
    )


def _path(option: str, path: object) -> str | None:
    if path is None:
        return None
    if not isinstance(path, str | PathLike):
        raise ConfigurationError(f"{option} is the path of a folder, not {path!r}.")
    return os.fspath(path)
