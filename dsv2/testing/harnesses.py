"""A harness for each kind of function. It runs a real subtask, without Spark and without a job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, Generic, TypeAlias, Unpack

from dsv2.base.type_variables import IN, IN1, IN2, OUT, OUT1, OUT2
from dsv2.environment import ExecutionEnvironment
from dsv2.functions import (
    OneInput,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.graph import Plan, WaitForBroadcast
from dsv2.graph.record_types import UNDECLARED
from dsv2.model.context import PartitionedContext, TwoOutputPartitionedContext
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.spi import TwoInputDeclaration
from dsv2.testing.harness import Harness, HarnessInput, HarnessOptions, HarnessOutput, check_options, declared_with
from dsv2.watermark import WatermarkDeclaration

_AnyKey: TypeAlias = Callable[[Any], Hashable]


class OneInputHarness(Harness[PartitionedContext[OUT]], Generic[IN, OUT]):
    """Runs a function with one input and one output.

    Args:
        function: The function. It is copied.
        key: The key selector of the input. None: the input is not keyed.
        output_key: The key selector of the output, if the stream remains keyed.
        options: See ``HarnessOptions``.
    """

    def __init__(
        self,
        function: OneInput[IN, OUT],
        *,
        key: Callable[[IN], Hashable] | None = None,
        output_key: Callable[[OUT], Hashable] | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        job = _Job(function, options)
        job.process(key, new_key_selector=output_key)
        super().__init__(job.plan(), options)
        self.input: HarnessInput[IN] = self._inputs[0]
        self.output: HarnessOutput[OUT] = self._outputs[0]


class TwoOutputHarness(Harness[TwoOutputPartitionedContext[OUT1, OUT2]], Generic[IN, OUT1, OUT2]):
    """Runs a function with two outputs.

    Args:
        function: The function. It is copied.
        key: The key selector of the input. None: the input is not keyed.
        first_output_key: The key selector of the first output, if the streams remain keyed.
        second_output_key: The key selector of the second output. Pass both or neither.
        options: See ``HarnessOptions``.
    """

    def __init__(
        self,
        function: TwoOutputStreamProcessFunction[IN, OUT1, OUT2],
        *,
        key: Callable[[IN], Hashable] | None = None,
        first_output_key: Callable[[OUT1], Hashable] | None = None,
        second_output_key: Callable[[OUT2], Hashable] | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        job = _Job(function, options)
        job.process(key, first_key_selector=first_output_key, second_key_selector=second_output_key)
        super().__init__(job.plan(), options)
        self.input: HarnessInput[IN] = self._inputs[0]
        self.first_output: HarnessOutput[OUT1] = self._outputs[0]
        self.second_output: HarnessOutput[OUT2] = self._outputs[1]


class TwoInputNonBroadcastHarness(Harness[PartitionedContext[OUT]], Generic[IN1, IN2, OUT]):
    """Runs a function with two inputs that are partitioned in the same way.

    Args:
        function: The function. It is copied.
        first_key: The key selector of the first input. None: the inputs are not keyed.
        second_key: The key selector of the second input. Pass both or neither.
        output_key: The key selector of the output, if the stream remains keyed.
        options: See ``HarnessOptions``.
    """

    def __init__(
        self,
        function: TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT],
        *,
        first_key: Callable[[IN1], Hashable] | None = None,
        second_key: Callable[[IN2], Hashable] | None = None,
        output_key: Callable[[OUT], Hashable] | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        body: Any = function
        if isinstance(body, TwoInputDeclaration):
            body = body.function_of(
                (UNDECLARED, UNDECLARED), (first_key, second_key), keeps_keys=output_key is not None
            )
        job = _Job(body, options)
        job.connect(first_key, job.stream(second_key), output_key)
        super().__init__(job.plan(), options)
        self.first_input: HarnessInput[IN1] = self._inputs[0]
        self.second_input: HarnessInput[IN2] = self._inputs[1]
        self.output: HarnessOutput[OUT] = self._outputs[0]


class TwoInputBroadcastHarness(Harness[PartitionedContext[OUT]], Generic[IN1, IN2, OUT]):
    """Runs a function with a partitioned input and a broadcast input.

    Args:
        function: The function. It is copied.
        key: The key selector of the partitioned input. None: it is not keyed.
        output_key: The key selector of the output, if the stream remains keyed.
        wait_for_broadcast: Whether the partitioned input waits, as for ``connect_and_process``.
        options: See ``HarnessOptions``.
    """

    def __init__(
        self,
        function: TwoInputBroadcastStreamProcessFunction[IN1, IN2, OUT],
        *,
        key: Callable[[IN1], Hashable] | None = None,
        output_key: Callable[[OUT], Hashable] | None = None,
        wait_for_broadcast: WaitForBroadcast | None = None,
        **options: Unpack[HarnessOptions],
    ) -> None:
        job = _Job(function, options)
        job.connect(key, job.upstream().broadcast(), output_key, wait_for_broadcast=wait_for_broadcast)
        super().__init__(job.plan(), options)
        self.non_broadcast_input: HarnessInput[IN1] = self._inputs[0]
        self.broadcast_input: HarnessInput[IN2] = self._inputs[1]
        self.output: HarnessOutput[OUT] = self._outputs[0]


class _Upstream(CollectionSource[Any]):
    """Represents the rest of the job: it declares the watermarks that the harness pushes."""

    def __init__(self, declarations: Collection[WatermarkDeclaration]) -> None:
        super().__init__([])
        self.declarations = declarations

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return self.declarations


class _Job:
    """A minimal job for a function: a source for each input and a sink for each output."""

    def __init__(self, function: ProcessFunction, options: HarnessOptions) -> None:
        check_options(options)
        self._function = function
        self._options = options
        self._env = ExecutionEnvironment.get_instance(runtime="local")
        self._env.set_parallelism(options.get("parallelism", 1))

    def upstream(self) -> Any:
        """Create a stream with the requested number of channels."""
        source = self._env.from_source(_Upstream(declared_with(self._function, self._options)), "upstream")
        return source.with_parallelism(self._options.get("channels", 1))

    def stream(self, key: _AnyKey | None) -> Any:
        """Create a stream for an input that is not broadcast."""
        return self.upstream().shuffle() if key is None else self.upstream().key_by(key)

    def process(self, key: _AnyKey | None, **output_keys: _AnyKey | None) -> None:
        """Add a function with one input. ``output_keys`` are keyword arguments of ``KeyedPartitionStream.process``."""
        selectors = {name: selector for name, selector in output_keys.items() if selector is not None}
        self._add_sinks(self.stream(key).process(self._function, **selectors))

    def connect(self, key: _AnyKey | None, other: Any, output_key: _AnyKey | None, **options: Any) -> None:
        """Add a function with two inputs."""
        keys = filter(None, [output_key])
        self._add_sinks(self.stream(key).connect_and_process(other, self._function, *keys, **options))

    def _add_sinks(self, result: Any) -> None:
        is_pair = isinstance(self._function, TwoOutputStreamProcessFunction)
        outputs = [result.first, result.second] if is_pair else [result]
        if "max_parallelism" in self._options:
            outputs[0].with_max_parallelism(self._options["max_parallelism"])
        tags = (*self._function.declare_outputs(), *self._options.get("side_outputs", ()))
        outputs += [result.side_output(tag) for tag in dict.fromkeys(tags)]
        if (policy := self._options.get("error_policy")) is not None:
            outputs[0].with_error_policy(policy)
            if policy.has_dead_letters:
                outputs.append(outputs[0].dead_letters(object))
        for output in outputs:
            output.to_sink(CollectSink())

    def plan(self) -> Plan:
        """Build the plan."""
        self._env._builder.ignores_addresses = True
        return self._env.build_plan("harness")
