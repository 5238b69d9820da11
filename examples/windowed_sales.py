"""The sales of each product in windows of an hour (Flink ``CountProductSalesWindowing``).

It computes the same as ``sales.py``, with event-time windows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from dsv2 import Collector, CollectSink, ExecutionEnvironment, NonKeyedPartitionStream, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import (
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    WindowStrategy,
)
from examples.console import format_time
from examples.orders import Order, some_orders
from examples.program import Table, execute, run_example

__all__ = ("CountSalesInWindow", "WindowSales", "count_sales_in_windows", "main")


class WindowSales(NamedTuple):
    """The quantity of ``product`` sold from ``start`` until before ``end`` (ms since the epoch)."""

    product: str
    start: int
    end: int
    sold: int


class CountSalesInWindow(OneInputWindowStreamProcessFunction[Order, WindowSales]):
    """Adds up the orders of a window when it fires. Until then, the window buffers them (unlike ``aggregate``)."""

    def on_trigger(
        self,
        output: Collector[WindowSales],
        ctx: PartitionedContext[WindowSales],
        window: OneInputWindowContext[Order],
    ) -> None:
        orders = window.get_all_records()
        sold = sum(order.quantity for order in orders)
        output.collect(WindowSales(orders[0].product, window.start_time, window.end_time, sold))


def count_sales_in_windows(orders: NonKeyedPartitionStream[Order]) -> NonKeyedPartitionStream[WindowSales]:
    """Compute the sales of each product by hour. Hours without sales are omitted."""
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    by_product = orders.process(generator).key_by(lambda order: order.product)
    hourly = by_product.window(WindowStrategy.tumbling(timedelta(hours=1)))
    return hourly.process(CountSalesInWindow()).with_uid("sales in windows")


def time_of(order: Order) -> int:
    """Return the event time of an order."""
    return order.time


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("windowed_sales", "Adds up the sales of each product in windows of an hour.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[WindowSales]()
    count_sales_in_windows(env.from_collection(some_orders())).to_sink(sink)
    execute(env, "windowed sales", options)
    rows = [(format_time(start), format_time(end), product, sold) for product, start, end, sold in sink.results]
    return Table("Sales by hour", ("from (UTC)", "until (UTC)", "product", "sold"), sorted(rows))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import windowed_sales

    sys.exit(windowed_sales.main())
