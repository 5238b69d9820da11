"""Sources of systems that push messages, which the driver receives. The checkpoint has those of a micro-batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from threading import Condition, Thread
from typing import Any, Generic

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T_co
from dsv2.errors import JobError
from dsv2.sources import (
    AssigningSource,
    AssignmentState,
    DataclassSerializer,
    Portion,
    SourceReader,
    SourceReaderContext,
    SplitBatch,
    SplitDiscovery,
    SplitEnumeratorContext,
)
from dsv2.sources.shared_parts import DecodingSource

_SECONDS_TO_CLOSE = 5


@dataclass(frozen=True)
class ReceivedSplit:
    """The position in the messages of a system, with those of the last micro-batch.

    Attributes:
        position: The position after them, in a form of the system.
        count: How many messages have been read.
        messages: The messages of the last micro-batch. It is repeated from them, whatever the system sends then.
    """

    position: str = ""
    count: int = 0
    messages: tuple[str, ...] = ()

    @property
    def split_id(self) -> str:
        """The same for all, because messages have one order: that in which they arrive."""
        return "messages"


class Receiver(ABC):
    """Receives messages in a thread, which waits while its inbox is full.

    Args:
        capacity: The most messages of the inbox.

    Attributes:
        is_closed: Whether ``close`` has been called.
        acknowledged: The number of the last message that the system need not repeat, as the job counts them.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._changed = Condition()
        self._inbox: deque[tuple[str, str]] = deque()
        self._failure: Exception | None = None
        self._thread = Thread(target=self._run, name="dsv2 receiver", daemon=True)
        self.is_closed = False
        self.acknowledged = 0

    @abstractmethod
    def open(self, split: ReceivedSplit) -> None:
        """Connect, to receive what follows ``split``. Raises ``JobError`` if the system does not answer."""

    @abstractmethod
    def receive(self) -> None:
        """Pass messages to ``put`` until the receiver is closed, or none follow. Runs in the thread."""

    def interrupt(self) -> None:  # noqa: B027 - most need not do anything
        """Make ``receive`` end soon, if it waits for the system. Called by ``close``."""

    def put(self, position: str, message: str) -> None:
        """Add a message and the position after it. Raises ``JobError`` if the receiver is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or len(self._inbox) < self._capacity)
            self._check_open()
            self._inbox.append((position, message))
            self._changed.notify_all()

    def pause(self, seconds: float) -> None:
        """Wait in the thread. Raises ``JobError`` as soon as the receiver is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed, seconds)
            self._check_open()

    def start(self, split: ReceivedSplit) -> None:
        """Begin to receive what follows ``split``."""
        self.open(split)
        self._thread.start()

    def take(self, limit: int | None) -> Sequence[tuple[str, str]]:
        """Remove messages from the inbox, at most ``limit``. When it is empty, raises the failure of the thread."""
        with self._changed:
            if self._failure is not None and not self._inbox:
                raise self._failure
            size = len(self._inbox) if limit is None else min(limit, len(self._inbox))
            taken = [self._inbox.popleft() for _ in range(size)]
            self._changed.notify_all()
            return taken

    def wait(self, timeout: timedelta) -> bool:
        """Wait for a message or a failure. Returns whether there is one."""
        with self._changed:
            return self._changed.wait_for(
                lambda: bool(self._inbox) or self._failure is not None, timeout.total_seconds()
            )

    def close(self) -> None:
        """Stop the thread."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        self.interrupt()
        if self._thread.ident is not None:
            self._thread.join(_SECONDS_TO_CLOSE)  # unless it just connects, which has a time limit

    def _check_open(self) -> None:
        if self.is_closed:
            raise JobError("The receiver is closed.")

    def _run(self) -> None:
        try:
            self.receive()
        except Exception as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()


class ReceivedDiscovery(SplitDiscovery[ReceivedSplit]):
    """Takes messages from a receiver, when a micro-batch is planned.

    The position at which a micro-batch begins is in the checkpoint, and the micro-batches before it are complete, so
    the system need not repeat the messages before it.

    Args:
        receiver: Receives the messages, from the first micro-batch on.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_started = False
        self._begins = True  # a micro-batch, which may advance several times

    def discover(self) -> list[ReceivedSplit]:
        return [ReceivedSplit()]

    def ready(self, waiting: Sequence[ReceivedSplit], limit: int | None, /) -> Sequence[ReceivedSplit]:
        self._begins = True
        return waiting

    def advance(self, split: ReceivedSplit, limit: int | None, /) -> Portion[ReceivedSplit] | None:
        if not self._is_started:
            self._receiver.start(split)
            self._is_started = True
        if self._begins:
            self._receiver.acknowledged = split.count
        taken = self._receiver.take(limit)
        if not taken:
            return None
        messages = (() if self._begins else split.messages) + tuple(message for _, message in taken)
        self._begins = False
        return Portion(ReceivedSplit(taken[-1][0], split.count + len(taken), messages), len(taken))

    def notify_checkpoint_complete(self, splits: Sequence[ReceivedSplit], /) -> None:
        for split in splits:
            self._receiver.acknowledged = split.count

    def wait(self, splits: Sequence[ReceivedSplit], timeout: timedelta, /) -> bool:
        return self._receiver.wait(timeout)

    def close(self) -> None:
        self._receiver.close()


class ReceivedSource(DecodingSource[T_co], AssigningSource[T_co, ReceivedSplit], ABC, Generic[T_co]):
    """The base class of the sources.

    Args:
        decode: Creates the record of a message.
        records_per_batch: The maximum number of messages in a micro-batch.
    """

    split_serializer = DataclassSerializer(ReceivedSplit)

    def __init__(self, decode: Callable[[Any], T_co], records_per_batch: int) -> None:
        self._decode = decode
        self.limit_per_batch = records_per_batch

    @property
    def bounded(self) -> bool:
        return False

    @abstractmethod
    def create_receiver(self) -> Receiver:
        """Create the receiver of a run. Called on the driver."""

    @abstractmethod
    def message_of(self, text: str) -> Any:
        """Return a message, as ``decode`` receives it, from its form in the checkpoint. Called in tasks."""

    def create_discovery(
        self, ctx: SplitEnumeratorContext[ReceivedSplit], restored: AssignmentState[ReceivedSplit] | None, /
    ) -> ReceivedDiscovery:
        return ReceivedDiscovery(self.create_receiver())

    def create_reader(self, ctx: SourceReaderContext, /) -> SourceReader[T_co, ReceivedSplit]:
        return _ReceivedReader(self._decode, self.message_of)

    def describe_position(self, split: ReceivedSplit, /) -> str:
        return f"{split.count} messages"

    def has_read(self, split: ReceivedSplit, offset: Offset, /) -> bool:
        return isinstance(offset, int) and offset < split.count


class _ReceivedReader(SourceReader[T_co, ReceivedSplit], Generic[T_co]):
    """Returns the records of a micro-batch from its positions."""

    def __init__(self, decode: Callable[[Any], T_co], message_of: Callable[[str], Any]) -> None:
        self._decode = decode
        self._message_of = message_of

    def read(self, start: ReceivedSplit, stop: ReceivedSplit, /) -> Iterator[SplitBatch[T_co]]:
        numbers = range(start.count, stop.count)
        if numbers:
            messages = [self._message_of(message) for message in stop.messages[-len(numbers) :]]
            yield SplitBatch(messages, self._decode, offsets=lambda: numbers)
