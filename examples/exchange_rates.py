"""Payments in euros: each is joined with the rate of its currency, which a service is asked for.

The service answers after 20 ms. Up to 100 requests are under way at the same time, each currency is asked for once a
minute, and requests that fail are repeated. The program starts the service itself, in a thread.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import attrgetter
from threading import Thread
from typing import NamedTuple

from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.extension.join import LookupCache, lookup_join
from dsv2.model import AsyncSettings
from examples.program import Table, execute, run_example

__all__ = ("PAYMENTS", "InEuros", "Payment", "at_rate", "in_euros", "main", "rate_of", "rate_service")

CENTS = {"EUR": 100, "USD": 86, "GBP": 115, "JPY": 1, "CHF": 107}
"""The worth of one unit of a currency, in cents."""


class Payment(NamedTuple):
    """A payment of an amount in a currency."""

    number: int
    currency: str
    amount: int


class InEuros(NamedTuple):
    """The value of a payment in cents; None if the currency is unknown."""

    payment: Payment
    cents: int | None


PAYMENTS = [Payment(number, (*CENTS, "XTS")[number * 7 % 6], 10 + number % 90) for number in range(300)]


def in_euros(payments: NonKeyedPartitionStream[Payment], port: int) -> NonKeyedPartitionStream[InEuros]:
    """Convert payments with the rates of the service at ``port``."""
    converted = lookup_join(
        partial(rate_of, port),
        attrgetter("currency"),
        at_rate,
        "left",
        cache=LookupCache(max_keys=1000, ttl=timedelta(minutes=1)),
        settings=AsyncSettings(capacity=100, timeout=timedelta(seconds=30)),
    )
    patient = ErrorPolicy().retry(OSError, times=5, backoff=timedelta(milliseconds=100), jitter=0.5)
    return payments.process(converted).with_error_policy(patient).with_uid("in euros")


def at_rate(payment: Payment, rate: int | None) -> InEuros:
    """Convert a payment."""
    return InEuros(payment, None if rate is None else payment.amount * rate)


async def rate_of(port: int, currency: str) -> int | None:
    """Ask the service."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"{currency}\n".encode())
        answer = await reader.readline()
    finally:
        writer.close()
    return int(answer) or None


@contextmanager
def rate_service() -> Iterator[int]:
    """Run the service during the block. Returns its port."""
    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(_answer, "127.0.0.1", 0))
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(server.wait_closed())
        loop.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    currency = await reader.readline()
    await asyncio.sleep(0.02)
    writer.write(b"%d\n" % CENTS.get(currency.decode().strip(), 0))
    await writer.drain()
    writer.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program with command-line ``arguments`` and return the exit code."""
    return run_example("exchange_rates", "Converts payments with the rates of a service.", _run, arguments)


def _run(env: ExecutionEnvironment, options: argparse.Namespace) -> Table:
    sink = CollectSink[InEuros]()
    with rate_service() as port:
        in_euros(env.from_collection(PAYMENTS, "payments"), port).to_sink(sink)
        execute(env, "exchange rates", options)
    totals: Counter[str] = Counter()
    for payment, cents in sink.results:
        totals[payment.currency] += cents or 0
    rows = [(currency, f"{cents / 100:,.2f}" if cents else "unknown") for currency, cents in sorted(totals.items())]
    return Table(f"{len(sink.results)} payments, in euros", ("currency", "total"), rows)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from examples import exchange_rates

    sys.exit(exchange_rates.main())
