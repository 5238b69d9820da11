"""Proofs: explores all states that gates and operators can reach, and compares each step with a model.

``docs/watermark-proofs.md`` describes what is proven. The cases and the explorer are in ``tests/proofs``.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.common.report import Report
from storms.common.command import Arguments, Deadline, conditions
from storms.common.parallel import in_order
from storms.common.results import Result, Results
from tests.proofs.bounds import BOUNDED, NIGHTLY
from tests.proofs.cases import cases
from tests.proofs.explorer import CounterexampleError, Planned, explore

__all__ = ("Proof", "main", "prove")

NAME = "proofs"
SHORT = {"bounded": True}


@dataclass(frozen=True)
class Proof(Result):
    """The outcome of a case. ``counterexample``: a shortest sequence that violates an invariant; empty if none does."""

    states: int = 0
    transitions: int = 0
    runs: int = 0
    depth: int = 0
    seconds: float = 0.0
    counterexample: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if an invariant does not hold."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--bounded", action="store_true", help="only the bounds of every run of the tests")
    parser.add_argument("--cases", metavar="TEXT", default="", help="only cases whose name contains this text")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="the number of processes (1)")
    options = parser.parse(arguments, SHORT)
    proofs = Results(options.results, NAME, Proof, again=options.again)
    deadline = Deadline(options.limit)
    planned = [one for one in cases(BOUNDED if options.bounded else NIGHTLY) if options.cases in one.name]
    missing = [one for one in planned if one.name not in proofs]
    for proof in in_order(missing, prove, options.jobs, deadline.is_over):
        proofs.add(proof)
        print(f"{proof.name}: {proof.states:,} states ({proof.seconds:.0f} s)", file=sys.stderr)
        if proof.counterexample:
            print(proof.counterexample, file=sys.stderr)
    done = [proof for proof in proofs if proof.name in {one.name for one in planned}]
    describe(done, len(planned), options).publish(options.results)
    return int(any(proof.counterexample for proof in done))


def prove(planned: Planned) -> Proof:
    """Explore a case."""
    begun = time.process_time()
    try:
        explored = explore(planned.case())
    except CounterexampleError as error:
        return Proof(planned.name, seconds=round(time.process_time() - begun, 1), counterexample=str(error))
    return Proof(planned.name, *explored, seconds=round(time.process_time() - begun, 1))


def describe(proofs: Sequence[Proof], planned: int, options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Proofs of watermarks", conditions(NAME, options.seed))
    groups = {group: [proof for proof in proofs if proof.name.startswith(group)] for group in _GROUPS}
    header = ("cases of", "cases", "distinct states", "transitions", "steps run", "frames at most", "CPU seconds")
    rows = [(group, *_sums(members)) for group, members in groups.items()]
    report.table("Explored", header, [*rows, ("all", *_sums(proofs))])
    largest = sorted(proofs, key=lambda proof: -proof.states)[:10]
    report.table("The largest cases", ("case", *header[2:]), [(one.name, *_sums([one])[1:]) for one in largest])
    found = [proof for proof in proofs if proof.counterexample]
    if found:
        report.table(
            "Counterexamples", ("case", "sequence"), [(one.name, _in_a_cell(one.counterexample)) for one in found]
        )
    report.at_least("cases", len(proofs), planned)
    report.at_most("counterexamples", len(found), 0)
    return report


_GROUPS = ("gate", "operator", "two operators", "barriers", "expiring", "functions")


def _sums(proofs: Iterable[Proof]) -> tuple[str, ...]:
    every = [*proofs]
    totals = (sum(one.states for one in every), sum(one.transitions for one in every), sum(one.runs for one in every))
    depth, seconds = max((one.depth for one in every), default=0), sum(one.seconds for one in every)
    return (f"{len(every)}", *(f"{total:,}" for total in totals), f"{depth}", f"{seconds:,.0f}")


def _in_a_cell(counterexample: str) -> str:
    """All lines of a counterexample, in one cell of a table."""
    return "; ".join(line.strip() for line in counterexample.splitlines()).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(main())
