"""Pooled clients are reused unless they failed. They are not shared across a fork, and are closed at exit."""

from __future__ import annotations

import subprocess
import sys

import pytest

from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.pool import Pool
from tests import ROOT
from tests.durations import ms

CONNECTION = KafkaConnection("test", "127.0.0.1:1", {}, ms(1000))
OTHER = KafkaConnection("test", "127.0.0.1:2", {}, ms(1000))

# The child keeps none of the parent's clients, so that it can create its own, collect garbage and exit.
FORKING = """
import faulthandler, gc, os, signal, sys
faulthandler.enable()
from datetime import timedelta
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.reader import consumers
from dsv2.connectors.kafka.producers import producers
from dsv2.connectors.kafka.transactions import _brokers

connection = KafkaConnection("test", "127.0.0.1:1", {}, timedelta(seconds=1))
pools = (consumers, producers, _brokers)
for pool in pools:
    pool.give_back(connection, pool.borrow(connection))
child = os.fork()
if not child:
    signal.alarm(60)
    for pool in pools:
        pool.borrow(connection)
    gc.collect()
    sys.exit(7)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
for pool in pools:
    with pool.lent(connection):
        pass  # the parent goes on
"""
EXITING = """
from datetime import timedelta
from dsv2.connectors.kafka.connection import KafkaConnection
from dsv2.connectors.kafka.pool import Pool

class Client:
    def __init__(self, connection):
        pass
    def close(self):
        print("closed")

connection = KafkaConnection("test", "127.0.0.1:1", {}, timedelta(seconds=1))
pool = Pool(Client)
pool.give_back(connection, pool.borrow(connection))
print("exits")
"""


class Client:
    def __init__(self, connection: KafkaConnection) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_client_is_reused_for_the_same_connection() -> None:
    pool = Pool(Client)
    with pool.lent(CONNECTION) as first, pool.lent(CONNECTION) as second, pool.lent(OTHER) as other:
        assert len({id(first), id(second), id(other)}) == 3
    with pool.lent(CONNECTION) as again, pool.lent(CONNECTION) as too:
        assert {again, too} == {first, second}
        assert not again.closed
        assert not too.closed


def test_some_clients_are_kept() -> None:
    pool = Pool(Client)
    clients = [pool.borrow(CONNECTION) for _ in range(10)]
    for client in clients:
        pool.give_back(CONNECTION, client)
    assert [client.closed for client in clients] == [False] * 8 + [True] * 2
    pool.close_idle()
    assert all(client.closed for client in clients)


def test_failed_client_is_closed_and_not_reused() -> None:
    pool = Pool(Client)
    with pytest.raises(KeyError), pool.lent(CONNECTION) as failed:
        raise KeyError
    assert failed.closed
    with pool.lent(CONNECTION) as next_one:
        assert next_one is not failed


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, text=True, capture_output=True, timeout=120
    ).stdout


def test_process_with_idle_clients_may_fork() -> None:
    run(FORKING)


def test_idle_clients_are_closed_before_interpreter_exit() -> None:
    assert run(EXITING).splitlines() == ["exits", "closed"]
