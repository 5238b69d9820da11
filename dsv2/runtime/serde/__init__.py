"""Serializes Python values as pure data: columns of values become trees that are encoded as MessagePack."""
