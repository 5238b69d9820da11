"""``dsv2 run``, ``dsv2 explain`` and ``dsv2 check``: pipelines that a function builds."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import msgspec

from dsv2.cli.command import Report, add_command, print_error, spark_commands, table
from dsv2.cli.configuration import Configuration, add_options, add_run_options, configuration_of
from dsv2.cli.json_logs import LOG, json_logs
from dsv2.cli.pipeline import PipelineFunction, UserCodeError, build, load, takes_session
from dsv2.environment import ExecutionEnvironment
from dsv2.errors import ConfigurationError, Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.jobs.handle import JobHandle, JobRuntime, JobStatus, RunOptions, Trigger
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.views.dashboard.running_job import DashboardRuntime
from dsv2.views.explain import ChannelDiagram, Explanation, ExplanationFormat, Finding, Severity
from dsv2.views.explain.text import finding_lines
from dsv2.views.terminal import NotedSignals, signals_noted, watch

if TYPE_CHECKING:
    from dsv2.local import LocalRuntime


@dataclass(frozen=True, slots=True)
class TypeCheck:
    """The result of a type check.

    Attributes:
        passed: False if a type is wrong.
        summary: ``ok``, ``errors`` or ``not checked``.
        lines: What to print.
    """

    passed: bool
    summary: str
    lines: Sequence[str]


def check_types(module: str) -> TypeCheck:
    """Run mypy on a module, in the current directory, whose configuration it uses."""
    if find_spec("mypy") is None:
        return TypeCheck(True, "not checked", ["Types were not checked: mypy is not installed (pip install mypy)."])
    command = [sys.executable, "-m", "mypy", "--no-color-output", "-m", module]
    result = subprocess.run(command, capture_output=True, text=True)
    passed = result.returncode == 0
    lines = [f"Types: {line}" for line in (result.stdout + result.stderr).splitlines()]
    return TypeCheck(passed, "ok" if passed else "errors", lines)


_FAILED = 1
_STOPPED_BY_CTRL_C = 130  # as for a process that SIGINT has ended

_CONTRACT = """\
The function builds the pipeline, and does not execute it. Its other parameters are settings, which --set converts to
their types. A parameter called spark receives the Spark session.

  def orders(env: ExecutionEnvironment, limit: int = 100) -> None:
      env.from_collection(range(limit)).map(str).to_sink(PrintSink())

Options may also be given as environment variables (DSV2_RUNTIME, DSV2_CHECKPOINT, ...; DSV2_SET_LIMIT for the setting
limit) or in a TOML file. The command line takes precedence over the environment, and the environment over the file.
"""

_RUN_NOTES = """\
While the job runs, its progress is shown on standard error. Ctrl-C and SIGTERM stop the job after the running
micro-batch; a second Ctrl-C cancels that. The exit code is 0 if the job has ended or SIGTERM has stopped it, 1 if it
has failed, 2 if it could not start, and 130 if Ctrl-C has stopped it.
"""

_CHECK_NOTES = """\
The exit code is 1 if a type is wrong, the pipeline cannot be built, or the runtime would refuse it; with --strict, also
if there are warnings. Types are checked by mypy, if it is installed, with the configuration of your project.
"""


def add_commands(groups: Any) -> None:
    """Add the commands to those of ``dsv2``."""
    run = _pipeline_command(
        groups,
        "run",
        "build a pipeline and run it until it ends",
        _run,
        "run shop.jobs:orders --runtime local --set limit=10",
        "run shop.jobs:orders --checkpoint /data/orders --parallelism 4 --conf spark.master=yarn",
        notes=_RUN_NOTES,
    )
    add_run_options(run)
    run.add_argument("--json", action="store_true", help="print the result as JSON")
    explain = _pipeline_command(
        groups,
        "explain",
        "show the plan of a pipeline without running it",
        _explain,
        "explain shop.jobs:orders",
        "explain shop.jobs:orders --output orders.svg",
        "explain shop.jobs:orders --channels end-of-day --output channels.svg",
        notes="The exit code is 1 if the pipeline cannot be built.",
    )
    explain.add_argument(
        "--format",
        choices=[format.value for format in ExplanationFormat],
        help="default: text, or that of the output file",
    )
    explain.add_argument("--output", metavar="FILE", help="write a file, such as plan.svg, instead of printing")
    explain.add_argument(
        "--channels",
        nargs="?",
        const="",
        metavar="WATERMARK",
        help="show the channels between subtasks, and which of them carry the watermark (default: all watermarks)",
    )
    explain.add_argument("--operator", metavar="UID", help="with --channels: only those into this operator")
    explain.set_defaults(json=False)
    check = _pipeline_command(
        groups,
        "check",
        "check the types and the plan of a pipeline without running it",
        _check,
        "check shop.jobs:orders",
        "check shop.jobs:orders --strict --no-types",
        notes=_CHECK_NOTES,
    )
    check.add_argument("--strict", action="store_true", help="warnings fail the check, too")
    check.add_argument("--no-types", action="store_true", help="do not run mypy")
    check.add_argument("--json", action="store_true", help="print JSON")


def _pipeline_command(
    groups: Any, name: str, text: str, run: Any, *examples: str, notes: str
) -> argparse.ArgumentParser:
    description = f"{text[0].upper()}{text[1:]}.\n\n{_CONTRACT}"
    command = add_command(groups, name, text, *examples, description=description, notes=notes)
    add_options(command)
    command.set_defaults(run=run)
    return command


def _run(arguments: argparse.Namespace) -> Report:
    configuration = configuration_of(arguments)
    if configuration.log_format == "json":
        arguments.contexts.enter_context(json_logs(configuration.name))
    function = load(configuration.target, configuration.pipelines)
    # While Spark starts, Ctrl-C is only noted. Without Spark, it ends a function that takes long to build a pipeline.
    with signals_noted() if configuration.runtime == "spark" else nullcontext() as noted:
        env = _environment(function, configuration)
        with signals_noted() if noted is None else nullcontext(noted) as signals:
            job = _start(env, configuration)
            try:
                return _watched(job, configuration, signals, arguments.command)
            except Dsv2Error as error:
                if configuration.log_format == "json":
                    LOG.error("The job has failed.", exc_info=error, extra={"job": configuration.name})
                else:
                    print_error(f"{type(error).__name__}: {error}")
                text = f"The job {configuration.name!r} has failed."
                return Report([text], {"status": "FAILED"}, exit_code=_FAILED)


def _watched(job: JobHandle, configuration: Configuration, signals: NotedSignals, command: str) -> Report:
    progress = watch(job, signals=signals, continue_with=command if configuration.checkpoint else None).progress
    operators = [
        {"operator": operator.uid, "records in": operator.records_in, "records out": operator.records_out}
        for operator in progress.operators.values()
    ]
    text = [f"The job {configuration.name!r} has {job.status.value.lower()}.", "", *table(operators)]
    data = {"status": job.status.value, "batch_id": progress.batch_id, "operators": operators}
    by_ctrl_c = job.status is JobStatus.STOPPED and signals.interrupts
    return Report(text, data, _STOPPED_BY_CTRL_C if by_ctrl_c else 0)


def _explain(arguments: argparse.Namespace) -> Report:
    configuration = configuration_of(arguments)
    try:
        explanation = _explanation(load(configuration.target, configuration.pipelines), configuration)
    except UserCodeError as error:
        print_error(str(error))
        return Report([], exit_code=_FAILED)
    code = 0 if explanation.is_valid else _FAILED
    shown: Explanation | ChannelDiagram = explanation
    if arguments.channels is not None and explanation.is_valid:
        shown = explanation.channels(arguments.channels or None, operator=arguments.operator)
    elif arguments.operator is not None and arguments.channels is None:
        raise ConfigurationError("--operator requires --channels.")
    if arguments.output is None:
        return Report([shown.render(arguments.format or "text").rstrip("\n")], exit_code=code)
    if arguments.format is None:
        shown.save(arguments.output)
    else:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(shown.render(arguments.format))
    return Report([f"The plan is in {arguments.output}."], exit_code=code)


def _check(arguments: argparse.Namespace) -> Report:
    configuration = configuration_of(arguments)
    types = None if arguments.no_types else check_types(configuration.target.partition(":")[0])
    text = [] if types is None else list(types.lines)
    problems: list[str | None] = []
    findings: Sequence[Finding] = ()
    try:
        view = _explanation(load(configuration.target, configuration.pipelines), configuration).view
    except UserCodeError as error:
        problems = [str(error)]
    else:
        problems = [view.error, None if view.runtime is None else view.runtime.refusal]
        findings = view.findings
        text += [line for severity in Severity for line in finding_lines(view, severity)]
    found = [problem for problem in problems if problem is not None]
    warned = any(finding.severity is Severity.WARNING for finding in findings)
    passed = not found and (types is None or types.passed) and not (arguments.strict and warned)
    text += [*(f"Error: {problem}" for problem in found)]
    text += [f"{configuration.target}: {'no errors' if passed else 'has errors'}"]
    data = {
        "passed": passed,
        "types": None if types is None else types.summary,
        "problems": found,
        "findings": msgspec.to_builtins(findings),
    }
    return Report(text, data, 0 if passed else _FAILED)


def _explanation(function: PipelineFunction, configuration: Configuration) -> Explanation:
    """Explain the pipeline of a function. A session is only started for a function that takes one."""
    session = None
    if configuration.runtime == "spark" and takes_session(function):
        session = spark_commands().session(configuration.spark)
    env = _built(function, configuration, _Runtime(configuration, None), session)
    return env.explain(job_name=configuration.name)


def _built(
    function: PipelineFunction, configuration: Configuration, runtime: _Runtime, session: object | None
) -> ExecutionEnvironment:
    """An environment with the pipeline of a function."""
    env = ExecutionEnvironment.get_instance(runtime)
    build(function, env, configuration, session)
    if env.is_empty:
        raise ConfigurationError(
            f"{configuration.target} has built nothing. It must add operators to the environment that it is given."
        )
    return env


class _Runtime:
    """The runtime of a command, which the function cannot use. ``runtime``: None for commands that run nothing."""

    def __init__(self, configuration: Configuration, runtime: JobRuntime | None) -> None:
        self._configuration = configuration
        self._runtime = runtime

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        assert self._runtime is not None
        return self._runtime.start(plan, options)

    def runtime_view(self, plan: Plan) -> RuntimeView:
        if self._configuration.runtime == "spark":
            view: RuntimeView = spark_commands().runtime_view_of(plan)
            return view
        return _local_runtime(self._configuration).runtime_view(plan)


def _environment(function: PipelineFunction, configuration: Configuration) -> ExecutionEnvironment:
    runtime: JobRuntime
    if configuration.runtime == "spark":
        if configuration.restarts:
            raise ConfigurationError("restarts requires the local runtime. Spark repeats failed tasks by itself.")
        runtime, session = spark_commands().runtime(configuration.spark, configuration.state_key)
    else:
        runtime, session = _local_runtime(configuration), None
    if configuration.dashboard is not None:
        address, token = str(configuration.dashboard), configuration.dashboard_token
        dashboard = Dashboard.at(address, token, allow_actions=configuration.allow_actions)
        runtime = DashboardRuntime(runtime, dashboard)
    return _built(function, configuration, _Runtime(configuration, runtime), session)


def _start(env: ExecutionEnvironment, configuration: Configuration) -> JobHandle:
    return env.execute_async(
        configuration.name,
        checkpoint_location=configuration.checkpoint,
        savepoint=configuration.savepoint,
        trigger=Trigger.available_now() if configuration.available_now else None,
    )


def _local_runtime(configuration: Configuration) -> LocalRuntime:
    from dsv2.local import LocalRuntime, RestartPolicy  # loads the runtime

    restarts = RestartPolicy(configuration.restarts) if configuration.restarts else None
    budget, processes = configuration.memory_budget, configuration.processes
    return LocalRuntime(checks=configuration.checks, restarts=restarts, memory_budget=budget, processes=processes)
