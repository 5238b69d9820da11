"""The sales of each product by hour, with a custom watermark (Flink ``CountSales``).

A watermark need not be event time. Here it means "all orders before this full hour have arrived". When it arrives, the
totals of that hour are emitted for all products. The watermark of the slowest channel determines the progress.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonKeyedPartitionStream,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    PrintSink,
    StateDeclaration,
    StateDeclarations,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from examples.console import format_time
from examples.orders import HOUR, Order, some_orders
from examples.program import Table, execute, run_example

__all__ = ("CountSales", "FullHours", "ProductSales", "count_sales", "main", "pipeline")

# The minimum over all channels, once each has emitted a value: an hour is over when it is over for all of them.
HOUR_IS_OVER = (
    new_builder("hour-is-over").type_long().combine_function_min().combine_wait_for_all_channels(True).build()
)


class ProductSales(NamedTuple):
    """The quantity of ``product`` sold in the hour before ``until`` (ms since the epoch)."""

    product: str
    until: int
    sold: int


class FullHours(OneInputStreamProcessFunction[Order, Order]):
    """Forwards orders, which are in the order of time, and emits a watermark when an hour is over."""

    def __init__(self) -> None:
        self.until: int | None = None

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [HOUR_IS_OVER]

    def process_record(self, record: Order, output: Collector[Order], ctx: PartitionedContext[Order]) -> None:
        hour = record.time - record.time % HOUR
        if self.until is None or hour > self.until:
            self.until = hour
            ctx.non_partitioned_context.watermark_manager.emit_watermark(HOUR_IS_OVER.new_watermark(hour))
        output.collect(record)


class CountSales(OneInputStreamProcessFunction[Order, ProductSales]):
    """Adds up the sold quantities on a stream keyed by product."""

    SOLD = StateDeclarations.map_state("sold", int, int)  # by the end of the hour

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self.SOLD]

    def process_record(
        self, record: Order, output: Collector[ProductSales], ctx: PartitionedContext[ProductSales]
    ) -> None:
        until = record.time - record.time % HOUR + HOUR
        sold = ctx.state_manager.get_state(self.SOLD)
        sold.put(until, sold.get(until, 0) + record.quantity)

    def on_watermark(
        self, watermark: Watermark, output: Collector[ProductSales], ctx: NonPartitionedContext[ProductSales]
    ) -> WatermarkHandlingResult:
        if watermark.identifier == HOUR_IS_OVER.identifier:
            self._report(ctx, watermark.value)
        return WatermarkHandlingResult.PEEK

    def end_input(self, ctx: NonPartitionedContext[ProductSales]) -> None:
        self._report(ctx, None)

    def _report(self, ctx: NonPartitionedContext[ProductSales], over: int | None) -> None:
        """Emit the hours that end by ``over``, or all remaining hours if it is None."""

        def report(output: Collector[ProductSales], ctx: PartitionedContext[ProductSales]) -> None:
            product = ctx.state_manager.key_as(str)
            sold = ctx.state_manager.get_state(self.SOLD)
            for until, quantity in sorted(sold.items()):
                if over is None or until <= over:
                    output.collect(ProductSales(product, until, quantity))
                    sold.remove(until)

        ctx.apply_to_all_partitions(report)


def count_sales(orders: NonKeyedPartitionStream[Order]) -> NonKeyedPartitionStream[ProductSales]:
    """Compute the sales of each product by hour. Hours without sales are omitted."""
    in_full_hours = orders.process(FullHours()).with_uid("full hours")
    return in_full_hours.key_by(lambda order: order.product).process(CountSales()).with_uid("sales")


def pipeline(env: ExecutionEnvironment) -> None:
    """Print the sales: ``dsv2 run examples.sales:pipeline``."""
    count_sales(env.from_collection(some_orders())).to_sink(PrintSink())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("sales", "Adds up the sales of each product, hour by hour.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[ProductSales]()
    count_sales(env.from_collection(some_orders())).to_sink(sink)
    execute(env, "sales", options)
    rows = [(format_time(until), product, sold) for product, until, sold in sink.results]
    return Table("Sales by hour", ("until (UTC)", "product", "sold"), sorted(rows))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import sales

    sys.exit(sales.main())
