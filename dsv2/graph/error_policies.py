"""The error policy of an operator, and whether its function supports one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from dsv2.errors import ConfigurationError, PlanError
from dsv2.functions import ProcessFunction
from dsv2.graph.plan import DEAD_LETTERS, Operator, Plan
from dsv2.graph.sink_checks import SinkCheck
from dsv2.model.error_policy import ErrorAction, ErrorPolicy
from dsv2.model.output_tag import OutputTag
from dsv2.sinks import Sink
from dsv2.sources import BaseSource


def policy_of(
    body: ProcessFunction | BaseSource[Any] | Sink[Any],
    own: ErrorPolicy | None,
    default: ErrorPolicy | None,
    where: str,
) -> ErrorPolicy | None:
    """The policy of an operator: its own, or the default if its function supports one. None if the job always fails.

    The policy of a sink is that of the check before it (``with_sink_checks``).

    Raises:
        PlanError: ``own`` is set, but the operator does not support it.
    """
    refusal = None if isinstance(body, Sink) else body.dsv2_refuses_error_policy
    if own is None:
        is_function = isinstance(body, ProcessFunction) and not isinstance(body, SinkCheck)
        own = default if is_function and refusal is None else None
    elif own.handles_errors and refusal is not None:
        raise PlanError(f"{where}: {type(body).__name__} cannot have an error policy, because {refusal}")
    return own if own is not None and own.handles_errors else None


def checked_policy(policy: object, where: str) -> ErrorPolicy:
    """Return ``policy``. Raises ``ConfigurationError`` if it is not an ``ErrorPolicy``."""
    if not isinstance(policy, ErrorPolicy):
        raise ConfigurationError(
            f"{where}: an error policy is an ErrorPolicy, such as ErrorPolicy().skip(ValueError), not {policy!r}."
        )
    limits = (policy.max_failures, policy.max_failures_per_micro_batch)
    if limits != (None, None) and all(rule.action is ErrorAction.FAIL for rule in policy.rules):
        raise ConfigurationError(f"{where}: limit counts skipped records and dead letters. Add skip or dead_letter.")
    return policy


def check_dead_letters(policy: ErrorPolicy | None, outputs: Collection[OutputTag[Any]], where: str) -> None:
    """Raise ``PlanError`` if dead letters are read that are never emitted."""
    if DEAD_LETTERS in outputs and not (policy is not None and policy.has_dead_letters):
        raise PlanError(f"{where}: its error policy emits no dead letters. Add dead_letter() to the policy.")


def with_policies(plan: Plan, policies: Mapping[str, ErrorPolicy]) -> Plan:
    """Return ``plan`` with other error policies of operators. Their retries stay as they are.

    Args:
        plan: The plan.
        policies: The policies, by uid.

    Raises:
        ConfigurationError: There is no such operator.
        PlanError: An operator cannot have the policy.
    """
    if missing := policies.keys() - {one.uid for one in plan.operators if not isinstance(one.body, Sink)}:
        raise ConfigurationError(f"The job has no function or source {', '.join(map(repr, sorted(missing)))}.")

    def changed(operator: Operator) -> Operator:
        if operator.uid not in policies:
            return operator
        before, where = operator.error_policy, str(operator)
        asked = checked_policy(policies[operator.uid], where)
        if operator in plan.chained_to_sources and asked.handles_errors:
            raise ConfigurationError(
                f"{where} is a part of the tasks of its source, which have no error policies. Set the policy in the "
                f"program: the function is not chained to the source then."
            )
        policy = policy_of(operator.body, replace(asked, retries=before.retries if before else ()), None, where)
        check_dead_letters(policy, operator.side_outputs, where)
        return replace(operator, error_policy=policy)

    return replace(plan, operators=tuple(map(changed, plan.operators)))
