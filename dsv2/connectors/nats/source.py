"""``NatsSource``."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic

from dsv2.base.record_position import Offset
from dsv2.base.secrets import OptionValue
from dsv2.base.type_variables import T_co
from dsv2.checks.arguments import check_at_least_one
from dsv2.connectors.nats.connection import NatsConnection
from dsv2.connectors.nats.message import NatsMessage, NatsSplit
from dsv2.errors import ConfigurationError, JobError
from dsv2.sources import DataclassSerializer, Portion, SplitBatch, SplitSource
from dsv2.sources.shared_parts import DecodingSource

_MESSAGES_AT_ONCE, _BYTES_AT_ONCE = 1000, 64 << 20
_SECONDS = 30


class NatsSource(DecodingSource[T_co], SplitSource[T_co, NatsSplit], Generic[T_co]):
    """Reads the messages of streams, each once. A stream is a split, and its position a number in the checkpoint.

    The source keeps nothing in the server: it reads with consumers that do not acknowledge and end with the
    micro-batch. So messages must exist until they are read: the retention of the stream must be by limits. If it
    discards messages that the job has not read, the job fails, also if that happens before a micro-batch is repeated.
    Records have the timestamps at which messages were stored.
    """

    record_types = (NatsMessage,)
    split_serializer = DataclassSerializer(NatsSplit)

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        streams: Sequence[str],
        decode: Callable[[NatsMessage], T_co],
        subject: str = "",
        bounded: bool = False,
        allow_discarded: bool = False,
        records_per_batch: int = 10_000,
        retry_timeout: timedelta = timedelta(minutes=2),
        options: Mapping[str, OptionValue] | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Create the source.

        Args:
            servers: The servers of a cluster, such as ``nats://host:4222``. A user and password in it are never shown.
            streams: The names of the streams, which must exist.
            decode: Creates the record of a message.
            subject: The subject of the messages to read, with wildcards. Empty: all messages.
            bounded: Whether the source ends with the messages that exist when the job first starts.
            allow_discarded: Whether the job continues when a stream has discarded its oldest messages before they were
                read.
            records_per_batch: The maximum number of messages in a micro-batch. Those with another subject count.
            retry_timeout: How long unreachable servers are retried.
            options: Options of ``nats.connect``, such as ``user`` and ``password``. Secrets are never shown.
            tls: Creates the context of TLS connections where they are opened, such as
                ``partial(ssl.create_default_context, cafile="ca.pem")``.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        self._connection = NatsConnection("NatsSource", servers, options, tls, retry_timeout)
        if isinstance(streams, str) or not streams or len(set(streams)) < len(streams):
            raise ConfigurationError(f"streams must be a list of different names, not {streams!r}.")
        check_at_least_one(records_per_batch=records_per_batch)
        self._streams = tuple(streams)
        self._decode = decode
        self._subject = subject
        self._bounded = bounded
        self._allow_discarded = allow_discarded
        self.limit_per_batch = records_per_batch
        self._found: dict[str, Any] = {}  # nats.js.api.StreamInfo by stream

    def __repr__(self) -> str:
        return f"NatsSource({self._connection!r}, streams={list(self._streams)})"

    @property
    def bounded(self) -> bool:
        return self._bounded

    def refresh(self) -> None:
        async def infos(client: Any) -> list[Any]:
            server = client.jetstream(timeout=_SECONDS)
            return [await server.stream_info(stream) for stream in self._streams]

        self._found = dict(zip(self._streams, self._connection.run("Cannot read streams", infos), strict=True))

    def discover(self) -> list[NatsSplit]:
        splits = []
        for stream, info in self._found.items():
            end = info.state.last_seq if self.bounded else None
            splits.append(NatsSplit(stream, info.created.isoformat(), max(info.state.first_seq - 1, 0), end))
        return splits

    def advance(self, split: NatsSplit, limit: int | None, /) -> Portion[NatsSplit] | None:
        info = self._found[split.stream]
        end = info.state.last_seq if split.end is None else split.end
        stop = end if limit is None else min(end, split.position + limit)
        if stop > split.position:
            self._check_all_exist(split, split.position, info)
        elif split.end is None:
            return None
        return Portion(replace(split, position=stop), stop - split.position, stop == split.end)

    def lag(self, split: NatsSplit, /) -> int:
        return int(self._found[split.stream].state.last_seq) - split.position

    def read(self, start: NatsSplit, stop: NatsSplit, /) -> Iterator[SplitBatch[T_co]]:
        at = start.position
        while at < stop.position:
            fetch = partial(self._fetch, start, at, stop.position)
            messages, at = self._connection.run(f"Cannot read stream {start.stream}", fetch)
            timestamps = [message.timestamp for message in messages]
            offsets = partial(_sequences_of, messages)
            yield SplitBatch(messages, self._decode, timestamps=timestamps, offsets=offsets)

    def has_read(self, split: NatsSplit, offset: Offset, /) -> bool:
        return int(offset) <= split.position

    def _check_all_exist(self, split: NatsSplit, position: int, info: Any) -> None:
        if info.created.isoformat() != split.created or info.state.last_seq < position:
            raise JobError(
                f"The stream {split.stream} was deleted and created again. Start the job with a new "
                f"checkpoint_location, or restore the stream."
            )
        if info.state.first_seq > position + 1 and not self._allow_discarded:
            raise JobError(
                f"The stream {split.stream} has discarded the messages {position + 1} to {info.state.first_seq - 1} "
                f"before they were read. Raise its limits, and start the job with allow_discarded=True to continue "
                f"behind them."
            )

    async def _fetch(self, split: NatsSplit, after: int, end: int, client: Any) -> tuple[list[NatsMessage], int]:
        """Return messages after a position, and the position up to which there are no others."""
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        server = client.jetstream(timeout=_SECONDS)
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=after + 1,
            ack_policy=AckPolicy.NONE,
            filter_subject=self._subject or None,
            inactive_threshold=2 * _SECONDS,
        )
        consumer = await server.add_consumer(split.stream, config)
        inbox = client.new_inbox()
        answers = await client.subscribe(inbox)
        most = min(_MESSAGES_AT_ONCE, end - after)
        request = {"batch": most, "no_wait": True, "max_bytes": _BYTES_AT_ONCE}
        address = f"$JS.API.CONSUMER.MSG.NEXT.{split.stream}.{consumer.name}"
        await client.publish(address, json.dumps(request).encode(), inbox)
        found: list[NatsMessage] = []
        at, left = after, consumer.num_pending
        while left and at < end and len(found) < most:
            answer = await answers.next_msg(_SECONDS)
            if not answer.reply and found:  # a status: the answer has its maximum size
                break
            about = answer.metadata
            at, left = about.sequence.stream, about.num_pending
            if at <= end:
                stored = int(about.timestamp.timestamp() * 1000)
                found.append(NatsMessage(split.stream, at, answer.subject, answer.data, answer.headers or {}, stored))
        self._check_all_exist(split, after, await server.stream_info(split.stream))
        await server.delete_consumer(split.stream, consumer.name)
        return found, at if left else end


def _sequences_of(messages: Sequence[NatsMessage]) -> list[int]:
    return [message.sequence for message in messages]
