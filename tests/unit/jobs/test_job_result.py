"""The result of a job at the end of a cell or in a REPL."""

from __future__ import annotations

from datetime import timedelta

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.jobs.handle import JobResult
from dsv2.jobs.progress import JobProgress, OperatorProgress


def test_result_is_shown_on_one_short_line_and_as_a_table() -> None:
    env = ExecutionEnvironment.get_instance(runtime="local")
    numbers = env.from_collection([1, 0, 2]).map(lambda n: 2 // n).with_uid("halves <b>").with_name("Halves")
    numbers.with_error_policy(ErrorPolicy().skip(ZeroDivisionError)).to_sink(CollectSink())
    result = env.execute("two & two")
    shown = repr(JobResult(result.job_name, timedelta(milliseconds=1500), result.progress))
    assert shown == "JobResult('two & two', 1.500 s, 3 operators, last micro-batch 0, 1 errors)"
    html = result._repr_html_()
    assert html.startswith("<p>JobResult(&#x27;two &amp; two&#x27;, ")
    assert "<td>Halves</td><td>halves &lt;b&gt;</td><td>3</td><td>2</td>" in html


def test_many_operators_do_not_make_it_longer() -> None:
    operators = {str(number): OperatorProgress(str(number), "Map") for number in range(1000)}
    shown = repr(JobResult("x" * 1000, timedelta(days=400), JobProgress(7, operators)))
    assert len(shown) < 200
    assert "1000 operators" in shown
