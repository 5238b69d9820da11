"""``RedisSink``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import islice
from typing import Any, Generic, NamedTuple

from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T
from dsv2.connectors.redis.commands import RedisCommand, encoded
from dsv2.connectors.redis.connection import RedisConnection
from dsv2.errors import JobError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

_COMMANDS_AT_ONCE = 1000

# Runs commands of a micro-batch that were not run before, and stores in the ledger how many of them have been run.
_WRITE = """
local batch, first = tonumber(ARGV[2]), tonumber(ARGV[3])
local last, done = string.match(redis.call('HGET', KEYS[1], ARGV[1]) or '-1 0', '(%S+) (%S+)')
last, done = tonumber(last), tonumber(done)
if last > batch then return 0 end
if last < batch then done = 0 end
local number, place, failure = first, 6, false
while ARGV[place] and not failure do
  local stop = place + tonumber(ARGV[place])
  if number >= done then
    local result = redis.pcall(unpack(ARGV, place + 1, stop))
    failure = type(result) == 'table' and result.err and result
    if not failure then done = number + 1 end
  end
  number, place = number + 1, stop + 1
end
redis.call('HSET', KEYS[1], ARGV[1], batch .. ' ' .. done .. ' ' .. ARGV[4] .. ' ' .. ARGV[5])
return failure or done
"""


class _Progress(NamedTuple):
    """The last micro-batch of a subtask in the ledger, and its writer."""

    batch_id: int
    parallelism: int
    run_id: str


class RedisSink(ParallelSink[T], Generic[T]):
    """Runs a command for each record, exactly once.

    The server runs the commands of a micro-batch in atomic parts of up to 1,000, and stores in the same step how far it
    is, in the hash ``dsv2:<job>:<uid>``. A repeated micro-batch continues behind that. So commands such as ``INCRBY``
    count each record once. The guarantee is that of the server for what it has acknowledged: without ``appendfsync
    always`` a crash may lose commands, as may a failover to a replica. A cluster of several servers is not supported.
    """

    exactly_once = True

    def __init__(
        self,
        url: str,
        command: Callable[[T], RedisCommand],
        *,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
    ) -> None:
        """Create the sink.

        Args:
            url: The server, such as ``rediss://user:password@host:6379/0``. Its password is never shown.
            command: Returns the command of a record, such as ``("SET", "key", "value")``. ``add_to_stream`` and
                ``set_key`` create such functions.
            retry_timeout: How long an unreachable server is retried.
            options: Options of ``redis.Redis``. Secrets among them are never shown.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = RedisConnection("RedisSink", url, options, retry_timeout)
        self._command = command

    def describe_target(self) -> str:
        return repr(self._connection)

    def check_record(self, record: T) -> None:
        """Raise an error if the command of ``record`` is invalid."""
        encoded(self._command(record))

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        with self._connection.opened("Cannot begin to write") as client:
            for entry in _ledger(client, info).values():
                if info.is_written(batch_id, entry.batch_id, entry.run_id) and entry.parallelism != info.parallelism:
                    raise JobError(
                        f"Micro-batch {batch_id} was written in part by {entry.parallelism} subtasks before the job "
                        f"failed, and {info.parallelism} subtasks cannot write the rest. Start the job with "
                        f"parallelism {entry.parallelism} for this sink, and change it after that micro-batch."
                    )

    def write(self, batch: SinkBatch[T]) -> None:
        info = batch.info
        with self._connection.opened("Cannot write") as client:
            if (entry := _ledger(client, info).get(batch.subtask)) is not None:
                info.is_written(batch.batch_id, entry.batch_id, entry.run_id)
            commands = (encoded(self._command(record)) for part in batch.batches for record in part.rows())
            first = 0
            while part := list(islice(commands, _COMMANDS_AT_ONCE)):
                parts = [argument for command in part for argument in (len(command), *command)]
                who = info.parallelism, info.run.run_id
                client.eval(_WRITE, 1, _key_of(info), batch.subtask, batch.batch_id, first, *who, *parts)
                first += len(part)


def _key_of(info: SinkInfo) -> str:
    return f"dsv2:{info.job_id}:{info.uid}"


def _ledger(client: Any, info: SinkInfo) -> dict[int, _Progress]:
    found = {}
    for subtask, value in client.hgetall(_key_of(info)).items():
        batch_id, _, parallelism, run_id = value.decode().split(" ", 3)
        found[int(subtask)] = _Progress(int(batch_id), int(parallelism), run_id)
    return found
