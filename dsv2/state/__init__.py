"""State of functions: declared, typed, and part of the checkpoint (FLIP-433). The runtime stores it.

A function returns its declarations, created with ``StateDeclarations``, from ``uses_states``, and accesses a state with
``ctx.state_manager.get_state(declaration)``.
"""

from dsv2.state.aggregate import AggregateFunction, aggregate_of
from dsv2.state.declaration import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateBuilder,
    ListStateDeclaration,
    MapStateBuilder,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingStateDeclaration,
    StateDeclaration,
    StateDeclarations,
    ValueStateDeclaration,
)
from dsv2.state.handles import AggregatingState, BroadcastState, ListState, MapState, ReducingState, ValueState
from dsv2.state.ttl import StateTtl, TtlTimeCharacteristic, TtlUpdate

__all__ = (
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDeclaration",
    "BroadcastState",
    "BroadcastStateDeclaration",
    "ListState",
    "ListStateBuilder",
    "ListStateDeclaration",
    "MapState",
    "MapStateBuilder",
    "MapStateDeclaration",
    "RedistributionMode",
    "RedistributionStrategy",
    "ReducingState",
    "ReducingStateDeclaration",
    "StateDeclaration",
    "StateDeclarations",
    "StateTtl",
    "TtlTimeCharacteristic",
    "TtlUpdate",
    "ValueState",
    "ValueStateDeclaration",
    "aggregate_of",
)
