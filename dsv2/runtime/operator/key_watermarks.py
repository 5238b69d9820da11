"""The per-key watermarks of one operator in one subtask.

What the channels have sent for a key is part of the entry of the key in the keyed store: for each input and identifier
the snapshot of a combiner, as any other watermark has one. So it is rescaled with the key, and loaded when needed.
It is removed when all values have expired, and when the input has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from dsv2.errors import ContractError, JobError
from dsv2.graph.per_key import receives_keys
from dsv2.runtime.exchange.control_log import WATERMARK
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.function_calls import FunctionCalls
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.watermark import KeyedWatermark, WatermarkDeclaration
from dsv2.watermark.channel_rules import ChannelChange, rules_of
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.expiry import ExpiringCombiner

_COMBINERS: Final = -1
"""The place of the combiners in the entry of a key. By input and identifier: the number of channels, a snapshot, and
when the next value expires."""

_Name: TypeAlias = tuple[int, str]
"""An input and an identifier."""


def kinds_of_deadlines(declarations: Mapping[str, WatermarkDeclaration]) -> tuple[int, ...]:
    """The kinds of deadlines that watermarks with ``declarations`` have in a keyed store."""
    expire = any(declaration.scope.expires_after_ms is not None for declaration in declarations.values())
    return (Domain.KEY_WATERMARKS,) if expire else ()


class KeyWatermarks:
    """Combines, delivers and passes on.

    Args:
        instance: The function and its operator.
        declarations: The declarations of the job, by identifier.
        store: The keyed store of the operator.
        gates: The inputs, which may be added later.
        calls: Knows which watermarks the function handles.
        handle: Calls the function with the input and a watermark, in the partition of its key.
        send: Sends a control element downstream.
        now: Returns the processing time in ms.
    """

    def __init__(
        self,
        instance: FunctionInstance,
        declarations: Mapping[str, WatermarkDeclaration],
        store: PagedKeyedStore,
        gates: Sequence[InputGate],
        calls: FunctionCalls,
        handle: Callable[[int, KeyedWatermark], None],
        send: Callable[[int, str, Any], None],
        now: Callable[[], int],
    ) -> None:
        for domain in kinds_of_deadlines(declarations):
            store.add_domain(domain)
        self._operator = instance.operator
        self._subtask = instance.subtask
        self._declarations = declarations
        self._identifiers = [name for name, declared in declarations.items() if declared.scope.key_type is not None]
        self._store = store
        self._gates = gates
        self._calls = calls
        self._handle = handle
        self._send = send
        self._now = now
        self._receives = receives_keys(instance.operator)

    def received(self, number: int, channel: int, identifier: str, pair: Any) -> None:
        """Process a watermark of a channel of the input ``number``. ``pair``: Its key and its value."""
        if not self._receives:
            self._pass_on(number, identifier, pair)
            return
        key, value = pair
        if not self._is_acted_on(number, identifier) or not self._owns(number, identifier, key):
            return
        self._change(key, (number, identifier), lambda combiner: combiner.update(channel, value))

    def changed(self, number: int, channel: int, change: str) -> None:
        """A channel has become active or idle, or has ended. ``change``: The method of a combiner."""
        if not self._receives or not any(self._is_acted_on(number, identifier) for identifier in self._identifiers):
            return
        gone = self._gates[number].ended
        for key, name in self._stored(number):
            self._change(key, name, lambda combiner: getattr(combiner, change)(channel), forget=gone)

    def expire(self, now_ms: int) -> None:
        """Forget the values that have expired at ``now_ms``, and deliver the combination of the others."""
        for _, key in sorted(self._store.take_due(Domain.KEY_WATERMARKS, now_ms), key=lambda due: due[0]):
            for name in self._expiring(key):
                self._change(key, name, lambda combiner: combiner.expire(now_ms))

    def _expiring(self, key: Any) -> list[_Name]:
        stored: Mapping[_Name, Any] = (self._store.find(key) or {}).get(_COMBINERS, {})
        return [name for name, (*_, deadline) in stored.items() if deadline is not None]

    def next_deadline(self) -> int | None:
        """Return when the next value expires, in ms, or a lower bound of it. None: there is none."""
        return self._store.next_deadline(Domain.KEY_WATERMARKS)

    def _pass_on(self, number: int, identifier: str, pair: Any) -> None:
        operator = self._operator
        if len(self._gates) > 1 or self._gates[number].channels > 1:
            raise JobError(
                f"{operator}, defined at {operator.location}, has received the per-key watermark {identifier!r}, but "
                f"has several channels and no keys. Declare the watermark in the function that emits it, so that the "
                f"plan is checked."
            )
        self._send(WATERMARK, identifier, pair)

    def _is_acted_on(self, number: int, identifier: str) -> bool:
        return self._calls.handles_key_watermark(number, identifier) and identifier not in self._operator.passes_on

    def _owns(self, number: int, identifier: str, key: Any) -> bool:
        operator = self._operator
        owner = subtask_of(key, operator.max_parallelism, operator.parallelism)
        if owner != self._subtask and operator.input_keys[number] is not None:
            raise ContractError(
                f"{operator}, defined at {operator.location}, subtask {self._subtask} has received the per-key "
                f"watermark {identifier!r} of the key {shorten(key)}, which belongs to subtask {owner}. Where the "
                f"stream stays keyed, a function can only emit per-key watermarks of its own keys."
            )
        return owner == self._subtask

    def _stored(self, number: int) -> Iterator[tuple[Any, _Name]]:
        """The keys and names of the combiners of an input."""
        for key in self._store:
            for name in list((self._store.find(key) or {}).get(_COMBINERS, ())):
                if name[0] == number:
                    yield key, name

    def _change(self, key: Any, name: _Name, change: Callable[[Any], Any], *, forget: bool = False) -> None:
        """Change a combiner, store it, and deliver what it returns. ``forget``: Remove it instead of storing it."""
        number, identifier = name
        if identifier not in self._declarations:  # it was when the value was stored
            self._keep(key, name, None)
            return
        delivered, combiner = self._loaded(key, name)
        combined = change(combiner)
        while combined is not None:
            delivered.append(combined)
            combined = combiner.following()
        is_empty = isinstance(combiner, ExpiringCombiner) and combiner.next_deadline() is None
        self._keep(key, name, None if forget or is_empty else combiner)
        watermark_of = self._declarations[identifier].watermark_of
        for value in delivered:
            self._store.touch(key)
            watermark = watermark_of((key, value))
            assert isinstance(watermark, KeyedWatermark)
            self._handle(number, watermark)

    def _loaded(self, key: Any, name: _Name) -> tuple[list[Any], Any]:
        """The combiner of a key, and what it delivers because the channels have changed since it was stored."""
        number, identifier = name
        gate, declaration = self._gates[number], self._declarations[identifier]
        stored = (self._store.find(key) or {}).get(_COMBINERS, {}).get(name)
        if stored is None:
            return [], new_combiner(declaration, gate.channels, gate.inactive, self._now)
        combiner: Any = new_combiner(declaration, gate.channels, (), self._now)
        channels, state, _ = stored
        if channels == gate.channels:
            combiner.restore(state)
            return [], combiner
        rules = rules_of(identifier, self._declarations)
        combiner.restore(rules.replaced(state, ChannelChange(channels, gate.channels)))
        changed = [combiner.deactivate(channel) for channel in sorted(gate.inactive)]
        return [value for value in changed if value is not None], combiner

    def _keep(self, key: Any, name: _Name, combiner: Combiner | None) -> None:
        entry = self._store.entry(key)
        combiners = dict(entry.get(_COMBINERS, {}))
        if combiner is None:
            combiners.pop(name, None)
        else:
            deadline = combiner.next_deadline() if isinstance(combiner, ExpiringCombiner) else None
            combiners[name] = self._gates[name[0]].channels, combiner.snapshot(), deadline
        deadlines = [deadline for *_, deadline in combiners.values() if deadline is not None]
        entry.pop(_COMBINERS, None)
        entry.pop(Domain.KEY_WATERMARKS, None)
        if combiners:
            entry[_COMBINERS] = combiners
        if deadlines:
            entry[Domain.KEY_WATERMARKS] = [min(deadlines)]
            self._store.add_deadline(Domain.KEY_WATERMARKS, key, min(deadlines))
