"""``ExecutionEnvironment``: the entry point of a program (Flink ``ExecutionEnvironment``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast

from dsv2.checks.arguments import as_choice, as_milliseconds, check_whole_number
from dsv2.checks.missing_methods import missing_method
from dsv2.checks.tracebacks import short_traceback
from dsv2.errors import ConfigurationError, Dsv2Error, MissingLibraryError, PlanError
from dsv2.graph import InputRef, OperatorKind, Plan, PlanBuilder, RegisteredType
from dsv2.graph.builder import caller_location, kind_of
from dsv2.graph.error_policies import checked_policy
from dsv2.graph.record_skips import checked_skips
from dsv2.jobs.handle import JobHandle, JobResult, JobRuntime
from dsv2.jobs.listener import JobListener
from dsv2.jobs.options import JobOptions, run_options
from dsv2.jobs.unfinished_jobs import watch
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.error_policy import ErrorPolicy
from dsv2.sources import BaseSource, CollectionSource, DataFrameSource, Source, WatermarkStrategy
from dsv2.sources.dataframe import ArrowStream, DataFrameLike, TableLike, is_table
from dsv2.streams.kinds import ConfiguredStream

if TYPE_CHECKING:
    from dsv2.views.explain import Explanation
    from dsv2.views.explain.explanation import ExplanationFormatChoice


T = TypeVar("T")

# name -> module with a function create(**options) -> JobRuntime
_RUNTIMES = {"spark": "runtime_spark", "local": "dsv2.local"}


_INSTEAD = {
    "add_source": "Call from_source(source).",
    "enable_checkpointing": "Pass checkpoint_location=... and trigger=... to execute.",
    "from_data": "Call from_collection(items).",
    "from_elements": "Call from_collection(items).",
    "from_list": "Call from_collection(items).",
    "from_pandas": "Call from_dataframe(dataframe, record_type).",
    "read_text_file": "Call from_source(FilesSource(...)) with text_lines() of dsv2.connectors.files.",
    "read_stream": "Call from_source(source), or from_dataframe for a DataFrame of Spark.",
    "set_runtime_mode": "Call set_execution_mode(mode).",
}
_refusals: list[str] = []
"""The reasons why no job can be started now. Empty: jobs can be started."""


@contextmanager
def starts_refused(reason: str) -> Iterator[None]:
    """Refuse to start jobs in this process, in all environments and threads. ``reason``: Shown in the error."""
    _refusals.append(reason)
    try:
        yield
    finally:
        _refusals.remove(reason)


class ExecutionEnvironment:
    """Builds pipelines and runs them.

    Create one with ``get_instance``. It can be reused after ``execute``.
    """

    def __init__(self, runtime: Callable[[], JobRuntime]) -> None:
        self._runtime = runtime
        self._builder = PlanBuilder(self._plan_of, _sample)
        self._parallelism = 1
        self._mode = RuntimeExecutionMode.STREAMING
        self._registered_types: list[RegisteredType] = []
        self._callback_timeout_ms: int | None = None
        self._error_policy = ErrorPolicy()
        self._listeners: list[JobListener] = []

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise missing_method(self, "ExecutionEnvironment", name, _INSTEAD)

    @staticmethod
    def get_instance(
        runtime: Literal["spark", "local"] | JobRuntime = "spark", *, spark: object | None = None, checks: bool = True
    ) -> ExecutionEnvironment:
        """Create an environment.

        Args:
            runtime: ``"spark"`` (default), ``"local"`` (in this process), or a runtime object such as
                ``dsv2.local.LocalRuntime(seed=7)``.
            spark: The ``SparkSession``, required by ``"spark"``.
            checks: For ``"local"``: whether to make the checks of ``LocalRuntime``, which are for tests.

        Raises:
            ConfigurationError: The runtime is unknown or not installed, or an argument does not apply to it.
        """
        if not checks and runtime != "local":
            raise ConfigurationError('checks=False requires runtime="local".')
        if not isinstance(runtime, str):
            if spark is not None:
                raise ConfigurationError('spark=... requires runtime="spark".')
            return ExecutionEnvironment(lambda: runtime)
        if runtime not in _RUNTIMES:
            raise ConfigurationError(f"Unknown runtime {runtime!r}: choose one of {', '.join(sorted(_RUNTIMES))}.")
        if (runtime == "spark") != (spark is not None):
            raise ConfigurationError(
                'The Spark runtime requires a session: get_instance(spark=session). runtime="local" takes none.'
            )
        options: dict[str, object] = {"checks": checks} if spark is None else {"spark": spark}
        return ExecutionEnvironment(lambda: _load_runtime(runtime, options))

    def from_source(
        self, source: BaseSource[T], name: str = "Source", *, watermarks: WatermarkStrategy[T] | None = None
    ) -> ConfiguredStream[T]:
        """Create a stream of the records of a source.

        Args:
            source: The source.
            name: The name of the operator.
            watermarks: How each split assigns timestamps and generates watermarks. Only for subclasses of
                ``dsv2.sources.Source``, which have splits.

        Raises:
            PlanError: ``source`` is not a source, ``name`` is not a string, or ``watermarks`` is given for a source
                without splits.
        """
        if not isinstance(source, BaseSource):
            raise PlanError(
                f"from_source at {caller_location()} takes a source of dsv2.sources, not {kind_of(source)}."
            )
        if not isinstance(name, str):
            raise PlanError(
                f"from_source at {caller_location()}: name must be a string, not {kind_of(name)}. A watermark strategy "
                f"is passed as watermarks=..."
            )
        if watermarks is not None and not isinstance(source, Source):
            raise PlanError(
                f"from_source at {caller_location()}: {kind_of(source)} has no splits, so watermarks does not apply. "
                f"Build the generator with build_as_process_function() and process the stream with it."
            )
        node = self._builder.add(OperatorKind.SOURCE, source, name)
        node.watermarks = watermarks
        return ConfiguredStream(self._builder, InputRef(node))

    def from_collection(
        self, items: Collection[T], name: str = "Collection Source", *, records_per_batch: int | None = None
    ) -> ConfiguredStream[T]:
        """Create a stream of the elements of a collection, in order if the parallelism of the source is 1.

        Otherwise its subtasks take turns, so the elements of a key have no order behind ``key_by``. Call
        ``with_parallelism(1)`` on the stream if their order matters.

        Args:
            items: The records. None is not a record.
            name: The name of the operator.
            records_per_batch: Maximum number of records in a micro-batch. None (default): no limit.

        Raises:
            ConfigurationError: ``items`` contains None, or ``records_per_batch`` is below 1.
        """
        return self.from_source(CollectionSource(items, records_per_batch=records_per_batch), name)

    def from_dataframe(
        self,
        dataframe: DataFrameLike | TableLike | ArrowStream,
        record_type: type[T],
        name: str = "DataFrame Source",
        *,
        split_by: str | None = None,
        records_per_batch: int | None = None,
    ) -> ConfiguredStream[T]:
        """Create a stream of the rows of a DataFrame of Spark or pandas, or of an Arrow table.

        Args:
            dataframe: The DataFrame or table. One of Spark requires the Spark runtime. Others may be of any library
                with Arrow's PyCapsule interface, such as Polars or DuckDB.
            record_type: The class that rows are converted to.
            name: The name of the operator.
            split_by: As for ``DataFrameSource``; only for a DataFrame of Spark.
            records_per_batch: As for ``DataFrameSource``.

        Raises:
            ConfigurationError: An argument is invalid.
            SchemaError: A table does not match ``record_type``.
        """
        if is_table(dataframe):
            if split_by is not None:
                raise ConfigurationError(
                    "split_by is for a DataFrame of Spark, whose rows have partitions. The rows of a table are "
                    "distributed in turn. Use parallelism 1 for the source, or key_by after it."
                )
            from dsv2.arrow.table_source import TableSource  # loads Arrow

            return self.from_source(TableSource(dataframe, record_type, records_per_batch=records_per_batch), name)
        source = DataFrameSource(dataframe, record_type, split_by=split_by, records_per_batch=records_per_batch)
        return self.from_source(source, name)

    @property
    def parallelism(self) -> int:
        """The parallelism of operators that do not set their own. Default: 1."""
        return self._parallelism

    def set_parallelism(self, parallelism: int) -> None:
        """Set the default parallelism of operators.

        Args:
            parallelism: Number of subtasks, at least 1.

        Raises:
            ConfigurationError: ``parallelism`` is not a positive int.
        """
        check_whole_number(parallelism, "parallelism")
        self._parallelism = parallelism

    @property
    def execution_mode(self) -> RuntimeExecutionMode:
        """The execution mode. Default: STREAMING."""
        return self._mode

    def set_execution_mode(self, mode: RuntimeExecutionMode | Literal["streaming", "batch", "automatic"]) -> None:
        """Set the execution mode.

        Args:
            mode: STREAMING, BATCH, or AUTOMATIC, which is BATCH if all sources are bounded and STREAMING otherwise.

        Raises:
            ConfigurationError: ``mode`` is not one of these.
        """
        self._mode = as_choice(RuntimeExecutionMode, mode, "mode")

    def set_callback_timeout(self, timeout: timedelta | None) -> None:
        """Fail the job if a callback of a process function takes too long.

        Without a timeout, a blocking callback stops the job from making progress and from stopping. With a timeout,
        the callback is interrupted with the signal SIGUSR2, and the ``UserFunctionError`` names operator, callback,
        subtask, key and record. If Python cannot interrupt it (native code), a Spark worker logs the stack and exits.
        The local runtime can only interrupt the main thread, with ``execute``; elsewhere it logs the stack. Sinks and
        source readers have no timeout.

        Args:
            timeout: The limit for one callback, at least 1 ms. None (default): no limit.

        Raises:
            ConfigurationError: ``timeout`` is not a positive duration.
        """
        self._callback_timeout_ms = None if timeout is None else as_milliseconds(timeout, "timeout", at_least=1)

    def set_error_policy(self, policy: ErrorPolicy) -> None:
        """Set the error policy of functions that do not set their own. Default: ``ErrorPolicy()``, the job fails.

        It does not apply to functions that cannot have a policy, such as those on Arrow tables, nor to sources and
        sinks, which have their own (``with_error_policy``).

        Args:
            policy: The policy.

        Raises:
            ConfigurationError: ``policy`` is not an ``ErrorPolicy``.
        """
        self._error_policy = checked_policy(policy, f"set_error_policy at {caller_location()}")

    def add_job_listener(self, listener: JobListener) -> None:
        """Add a listener of the jobs that this environment starts from now on.

        Args:
            listener: Called when a job starts, after each micro-batch and when the job ends.

        Raises:
            ConfigurationError: ``listener`` is not a ``JobListener``, or has been added before.
        """
        if not isinstance(listener, JobListener):
            raise ConfigurationError(f"add_job_listener takes a JobListener, not {listener!r}.")
        if any(listener is other for other in self._listeners):
            raise ConfigurationError(f"add_job_listener: {listener!r} has been added before.")
        self._listeners.append(listener)

    def register_type(
        self,
        record_type: type[T],
        *,
        take_apart: Callable[[T], object] | None = None,
        build: Callable[[Any], T] | None = None,
        formerly: str | Sequence[str] = (),
    ) -> None:
        """Allow values of a class in records and checkpoints.

        Required for a class that is neither defined nor imported in the modules of the job's functions. A class that
        is not a data class, such as one written in C or with a ``__reduce__``, also requires ``take_apart`` and
        ``build``. Both are called in the workers.

        Args:
            record_type: The class.
            take_apart: Converts a value to plain values.
            build: Creates an equal value from the result of ``take_apart``, which may come from a checkpoint.
            formerly: The name that the class had when values were stored, such as ``"shop.orders.Order"``, or several
                such names. Classes that are nested in it are renamed with it.

        Raises:
            ConfigurationError: ``record_type`` is not a class, only one of ``take_apart`` and ``build`` is given, or
                ``formerly`` is not a name with its module, is the current name, or belongs to another class.
        """
        if not isinstance(record_type, type):
            raise ConfigurationError(f"register_type takes a class, not {record_type!r}.")
        if (take_apart, build) != (None, None) and not (callable(take_apart) and callable(build)):
            raise ConfigurationError(
                f"register_type({record_type.__qualname__}) requires both take_apart and build, as functions, or "
                f"neither."
            )
        names = (formerly,) if isinstance(formerly, str) else tuple(formerly)
        for name in names:
            self._check_former_name(record_type, name)
        self._registered_types.append(RegisteredType(record_type, take_apart, build, names))

    def _check_former_name(self, record_type: type, name: object) -> None:
        call = f"register_type({record_type.__qualname__}, formerly={name!r})"
        if not isinstance(name, str) or "." not in name:
            raise ConfigurationError(f"{call}: give the module and the name of the class, such as 'shop.orders.Order'.")
        if name == f"{record_type.__module__}.{record_type.__qualname__}":
            raise ConfigurationError(f"{call}: the class still has this name.")
        for other in self._registered_types:
            if other.kind is not record_type and name in other.formerly:
                raise ConfigurationError(f"{call}: {other.kind.__qualname__} was registered with this former name.")

    @short_traceback
    def build_plan(self, job_name: str = "dsv2 job") -> Plan:
        """Build and check the plan of the pipeline so far, without running it.

        Raises:
            PlanError: The pipeline is invalid.
        """
        return self._plan_of(self._builder, job_name)

    def _plan_of(self, builder: PlanBuilder, job_name: str) -> Plan:
        """Build the pipeline of ``builder`` with the settings of this environment."""
        return builder.build(
            job_name,
            self._mode,
            self._parallelism,
            self._registered_types,
            self._callback_timeout_ms,
            self._error_policy,
        )

    def explain(self, format: ExplanationFormatChoice = "text", *, job_name: str = "dsv2 job") -> Explanation:
        """Explain the pipeline so far, without running or changing it.

        The result shows its operators, exchanges and watermarks, how the runtime would run it, and warnings. If the
        pipeline is invalid, it shows the error that ``execute`` would raise, and the operators. ``print`` shows it as
        text; a notebook shows a diagram; ``save("plan.svg")`` writes a file.

        Args:
            format: An ``ExplanationFormat``, or its string: what ``str()`` of the result returns.
            job_name: The name of the job.

        Raises:
            ConfigurationError: ``format`` is unknown.
        """
        from dsv2.plan_view.runtime_view import ExplainingRuntime
        from dsv2.plan_view.view import view_of_nodes
        from dsv2.views.explain.explanation import Explanation, explain  # not loaded by ``import dsv2``

        try:
            plan = self.build_plan(job_name)
            runtime = self.load_runtime()
            known = runtime.runtime_view(plan) if isinstance(runtime, ExplainingRuntime) else None
            return explain(plan, format, runtime=known)
        except Dsv2Error as error:
            nodes, mode = self._builder.nodes, self._mode.value
            return Explanation(view_of_nodes(nodes, job_name, mode, self._parallelism, error), format)

    @short_traceback
    def execute(self, job_name: str = "dsv2 job", **options: Unpack[JobOptions]) -> JobResult:
        """Run the pipeline and wait until it ends. The environment is empty afterwards and can be reused.

        Args:
            job_name: The name of the job.
            options: See ``JobOptions``.

        Raises:
            ConfigurationError: An option is unknown or invalid.
            PlanError: The pipeline is invalid.
            UserFunctionError: A callback raised an exception.
            IncompatibleCheckpointError: The program cannot continue from the checkpoint or savepoint.
            JobError: The job failed for another reason.
        """
        return self._start(job_name, options, background=False).result()

    @short_traceback
    def execute_async(self, job_name: str = "dsv2 job", **options: Unpack[JobOptions]) -> JobHandle:
        """Start the pipeline and return a handle. The environment is empty afterwards and can be reused.

        If the start fails, the pipeline is kept. Wait for the job with ``result()`` or ``await_termination()``: when
        the program ends, a job that still runs is terminated with an ``UnfinishedJobWarning``. The parameters and
        errors of the start are those of ``execute``.
        """
        job = self._start(job_name, options, background=True)
        watch(job, job_name, caller_location())
        return job

    def _start(self, job_name: str, options: JobOptions, *, background: bool) -> JobHandle:
        from dsv2.plan_view.findings import warn_of_mistakes  # not loaded by ``import dsv2``

        checked = run_options(options)
        if not isinstance(job_name, str):
            raise ConfigurationError(f"execute at {caller_location()}: job_name is a text, not {kind_of(job_name)}.")
        if _refusals:
            raise ConfigurationError(f"execute at {caller_location()}: {_refusals[-1]}")
        plan = self.build_plan(job_name)
        checked = replace(
            checked,
            skip_records=checked_skips(plan, options.get("skip_records") or {}),
            listeners=tuple(self._listeners),
            background=background,
        )
        warn_of_mistakes(plan)
        runtime = self.load_runtime()
        if (dashboard := options.get("dashboard")) is not None:
            from dsv2.views.dashboard.running_job import DashboardRuntime  # loads the server

            runtime = DashboardRuntime(runtime, dashboard)
        job = runtime.start(plan, checked)
        self._begin_new_pipeline()
        return job

    def take_plan(self, job_name: str = "dsv2 job") -> Plan:
        """Build and check the plan, and empty the environment as ``execute`` does.

        Raises:
            PlanError: The pipeline is invalid.
        """
        plan = self.build_plan(job_name)
        self._begin_new_pipeline()
        return plan

    def _begin_new_pipeline(self) -> None:
        self._builder.executed_at = caller_location()
        self._builder = PlanBuilder(self._plan_of, _sample, executed_before=self._builder.executed_at)

    @property
    def is_empty(self) -> bool:
        """True if nothing has been added since the environment was created or executed a pipeline."""
        return not self._builder.nodes

    def load_runtime(self) -> JobRuntime:
        """The runtime of this environment."""
        return self._runtime()


def _sample(plan: Plan, limit: int, seconds: float | None) -> list[Any]:
    from dsv2.local.sample import sample  # loads the runtime

    return sample(plan, limit, seconds)


def _load_runtime(name: str, options: dict[str, object]) -> JobRuntime:
    try:
        module = import_module(_RUNTIMES[name])
    except MissingLibraryError:
        raise
    except ImportError as error:
        raise ConfigurationError(
            f"The {name} runtime cannot be loaded ({error}). Install it with: pip install 'dsv2[{name}]'"
        ) from error
    return cast(JobRuntime, module.create(**options))
