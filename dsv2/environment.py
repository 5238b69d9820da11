"""Where a program begins (Flink ``ExecutionEnvironment``)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from importlib import import_module
from os import PathLike, fspath
from typing import Any, Literal, TypeVar, cast

from dsv2.arguments import as_choice, as_milliseconds, check_whole_number
from dsv2.context import RuntimeExecutionMode
from dsv2.errors import ConfigurationError, PlanError
from dsv2.graph import InputRef, OperatorKind, Plan, PlanBuilder, RegisteredType
from dsv2.graph.builder import caller_location, kind_of
from dsv2.graph.unread import warn_of_unread_streams
from dsv2.job import JobHandle, JobResult, JobRuntime, RunOptions, Trigger
from dsv2.sources import BaseSource, CollectionSource, DataFrameSource, Source, WatermarkStrategy
from dsv2.sources.dataframe import DataFrameLike
from dsv2.streams import ConfiguredStream
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import watch

__all__ = ("ExecutionEnvironment",)

T = TypeVar("T")

# name -> module with a function create(**options) -> JobRuntime
_RUNTIMES = {"spark": "runtime_spark", "local": "dsv2.local"}


class ExecutionEnvironment:
    """Builds pipelines and runs them. Made by ``get_instance``; may be used again after ``execute``."""

    def __init__(self, runtime: Callable[[], JobRuntime]) -> None:
        self._runtime = runtime
        self._builder = PlanBuilder()
        self._parallelism = 1
        self._mode = RuntimeExecutionMode.STREAMING
        self._registered_types: list[RegisteredType] = []
        self._callback_timeout_ms: int | None = None

    @staticmethod
    def get_instance(
        runtime: Literal["spark", "local"] | JobRuntime = "spark", *, spark: object | None = None, fast: bool = False
    ) -> ExecutionEnvironment:
        """A new environment.

        ``runtime``: ``"spark"`` (needs ``spark``, your ``SparkSession``), ``"local"`` (in this process), or a runtime
        object, such as ``dsv2.local.LocalRuntime(seed=7)``. ``fast``: for ``"local"``, leave out the checks of
        ``LocalRuntime``.
        """
        if fast and runtime != "local":
            raise ConfigurationError('fast=True goes with runtime="local".')
        if not isinstance(runtime, str):
            if spark is not None:
                raise ConfigurationError('spark=... goes with runtime="spark".')
            return ExecutionEnvironment(lambda: runtime)
        if runtime not in _RUNTIMES:
            raise ConfigurationError(f"Unknown runtime {runtime!r}: choose one of {', '.join(sorted(_RUNTIMES))}.")
        if (runtime == "spark") != (spark is not None):
            raise ConfigurationError(
                'The Spark runtime runs on your session: get_instance(spark=session); runtime="local" needs none.'
            )
        options: dict[str, object] = {"fast": fast} if spark is None else {"spark": spark}
        return ExecutionEnvironment(lambda: _load_runtime(runtime, options))

    def from_source(
        self, source: BaseSource[T], name: str = "Source", *, watermarks: WatermarkStrategy[T] | None = None
    ) -> ConfiguredStream[T]:
        """A stream of what ``source`` reads.

        ``watermarks``: how to tell event time in each split; for sources with splits only (those of
        ``dsv2.sources.Source``). Raises ``PlanError`` for what is no source, and for watermarks of another one.
        """
        if not isinstance(source, BaseSource):
            raise PlanError(
                f"from_source at {caller_location()} takes a source of dsv2.sources, not {kind_of(source)}."
            )
        if watermarks is not None and not isinstance(source, Source):
            raise PlanError(
                f"from_source at {caller_location()}: {kind_of(source)} has no splits to tell event time of. Build the "
                f"generator with build_as_process_function() instead, and process the stream with it."
            )
        node = self._builder.add(OperatorKind.SOURCE, source, name)
        node.watermarks = watermarks
        return ConfiguredStream(self._builder, InputRef(node))

    def from_collection(
        self, items: Collection[T], name: str = "Collection Source", *, records_per_batch: int | None = None
    ) -> ConfiguredStream[T]:
        """A stream of the elements of ``items``, in order; at most ``records_per_batch`` in a micro-batch."""
        return self.from_source(CollectionSource(items, records_per_batch=records_per_batch), name)

    def from_dataframe(
        self,
        dataframe: DataFrameLike,
        record_type: type[T],
        name: str = "DataFrame Source",
        *,
        split_by: str | None = None,
        records_per_batch: int | None = None,
    ) -> ConfiguredStream[T]:
        """A stream of the rows of a Spark DataFrame as ``record_type``. See ``DataFrameSource``."""
        source = DataFrameSource(dataframe, record_type, split_by=split_by, records_per_batch=records_per_batch)
        return self.from_source(source, name)

    @property
    def parallelism(self) -> int:
        """The parallelism of operators that do not set their own (default 1)."""
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism, at least 1."""
        check_whole_number(parallelism, "parallelism")
        self._parallelism = parallelism

    @property
    def execution_mode(self) -> RuntimeExecutionMode:
        """STREAMING unless set otherwise."""
        return self._mode

    def set_execution_mode(self, mode: RuntimeExecutionMode | Literal["streaming", "batch", "automatic"]) -> None:
        """STREAMING, BATCH, or AUTOMATIC: BATCH when all sources are bounded.

        Raises ``ConfigurationError`` for anything else.
        """
        self._mode = as_choice(RuntimeExecutionMode, mode, "mode")

    def set_callback_timeout(self, timeout: timedelta | None) -> None:
        """Fail the job if a callback of a process function takes longer than ``timeout``; None (default): any time.

        A callback that blocks would keep the job from going on, and from stopping, without a word. It is interrupted,
        and the ``UserFunctionError`` names operator, callback, subtask, key and record. Where Python cannot interrupt
        it (native code), a Spark worker ends, with the stack in its log; the local runtime, which can interrupt in the
        main thread only, logs the stack. Uses the signal SIGUSR2. Functions of sinks and readers of sources have no
        such limit.
        """
        self._callback_timeout_ms = None if timeout is None else as_milliseconds(timeout, "timeout", at_least=1)

    def register_type(
        self,
        record_type: type[T],
        *,
        take_apart: Callable[[T], object] | None = None,
        build: Callable[[Any], T] | None = None,
    ) -> None:
        """Let values of this class travel in records and be checkpointed.

        Needed for a class that is not defined or imported in the modules of the job's functions, and for one that is no
        class of data (written in C, say, or with a ``__reduce__``): for that, ``take_apart`` says what a value is made
        from, in plain values, and ``build`` makes an equal value of it. Both are called in the workers, ``build`` with
        whatever the checkpoint holds. Raises ``ConfigurationError`` for one without the other.
        """
        if not isinstance(record_type, type):
            raise ConfigurationError(f"register_type takes a class, not {record_type!r}.")
        if (take_apart is None) != (build is None) or not all(map(callable, filter(None, (take_apart, build)))):
            raise ConfigurationError(
                f"register_type({record_type.__qualname__}) takes both take_apart and build, two functions, or neither."
            )
        self._registered_types.append(RegisteredType(record_type, take_apart, build))

    @short_traceback
    def build_plan(self, job_name: str = "dsv2 job") -> Plan:
        """The checked plan of the pipeline so far, without running it. Raises ``PlanError``."""
        return self._builder.build(
            job_name, self._mode, self._parallelism, self._registered_types, self._callback_timeout_ms
        )

    @short_traceback
    def execute(
        self,
        job_name: str = "dsv2 job",
        *,
        checkpoint_location: str | PathLike[str] | None = None,
        trigger: Trigger | None = None,
        allow_non_restored_state: bool = True,
    ) -> JobResult:
        """Run the pipeline and wait for its end.

        ``checkpoint_location``: where a streaming job on Spark keeps its state; starting again with the same one goes
        on where the job was. ``trigger``: ``Trigger.available_now()`` when all sources are bounded, else
        ``Trigger.processing_time()``, if not given. ``allow_non_restored_state``: what happens when the checkpoint
        holds states or function fields that the program does not ask for, because they have other names now perhaps:
        True warns with ``DroppedStateWarning``, False refuses (Flink ``--allowNonRestoredState``).

        Raises ``PlanError`` if the pipeline cannot run,
        ``UserFunctionError`` if a callback raised, ``IncompatibleCheckpointError`` if the checkpoint does not fit.
        """
        return self._start(job_name, checkpoint_location, trigger, allow_non_restored_state).result()

    @short_traceback
    def execute_async(
        self,
        job_name: str = "dsv2 job",
        *,
        checkpoint_location: str | PathLike[str] | None = None,
        trigger: Trigger | None = None,
        allow_non_restored_state: bool = True,
    ) -> JobHandle:
        """Start the pipeline and return a handle. The environment is empty afterwards and may be used again.

        If the pipeline is refused, it stays as it is. Wait for the job with ``result()`` or ``await_termination()``: a
        program that ends first cuts off a job that has no end. ``UnfinishedJobWarning`` says so then.
        """
        job = self._start(job_name, checkpoint_location, trigger, allow_non_restored_state)
        watch(job, job_name, caller_location())
        return job

    def _start(
        self,
        job_name: str,
        checkpoint_location: str | PathLike[str] | None,
        trigger: Trigger | None,
        allow_non_restored_state: bool,
    ) -> JobHandle:
        checkpoint = None if checkpoint_location is None else fspath(checkpoint_location)
        if trigger is not None and not isinstance(trigger, Trigger):
            raise ConfigurationError(f"trigger must be a Trigger, such as Trigger.available_now(), not {trigger!r}.")
        plan = self.build_plan(job_name)
        warn_of_unread_streams(plan)
        job = self.load_runtime().start(plan, RunOptions(checkpoint, trigger, allow_non_restored_state))
        self._begin_new_pipeline()
        return job

    def take_plan(self, job_name: str = "dsv2 job") -> Plan:
        """The checked plan; the environment is empty afterwards, as after ``execute``. Raises ``PlanError``."""
        plan = self.build_plan(job_name)
        self._begin_new_pipeline()
        return plan

    def _begin_new_pipeline(self) -> None:
        self._builder.executed_at = caller_location()
        self._builder = PlanBuilder(executed_before=self._builder.executed_at)

    def load_runtime(self) -> JobRuntime:
        """The runtime that this environment runs on."""
        return self._runtime()


def _load_runtime(name: str, options: dict[str, object]) -> JobRuntime:
    try:
        module = import_module(_RUNTIMES[name])
    except ImportError as error:
        raise ConfigurationError(
            f"The {name} runtime cannot be loaded ({error}). Install it with: pip install 'dsv2[{name}]'"
        ) from error
    return cast(JobRuntime, module.create(**options))
