"""Protobuf messages as ``protoc`` generates them, for whatever version of Protobuf is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.internal import builder

if TYPE_CHECKING:
    from google.protobuf.message import Message

    class Currency(Message):
        def __init__(self, *, code: str = ...) -> None: ...

        code: str

    class Order(Message):
        def __init__(self, *, customer: int = ..., cents: int = ..., currency: Currency = ...) -> None: ...

        customer: int
        cents: int
        currency: Currency

        class Line(Message):
            def __init__(self, *, item: str = ...) -> None: ...

            item: str

else:
    _TEXT, _NUMBER, _MESSAGE = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_INT64, 11

    def _field(name, number, kind, type_name=None):
        return FieldDescriptorProto(name=name, number=number, type=kind, type_name=type_name, label=1)

    _money = FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    _money.message_type.add(name="Currency").field.append(_field("code", 1, _TEXT))
    _orders = FileDescriptorProto(
        name="shop/orders.proto", package="shop", syntax="proto3", dependency=["shop/money.proto"]
    )
    _orders.message_type.add(name="Customer").field.append(_field("name", 1, _TEXT))
    _order = _orders.message_type.add(name="Order")
    _order.field.extend([_field("customer", 1, _NUMBER), _field("cents", 2, _NUMBER)])
    _order.field.append(_field("currency", 3, _MESSAGE, ".shop.Currency"))
    _order.nested_type.add(name="Line").field.append(_field("item", 1, _TEXT))
    for _file in (_money, _orders):
        _descriptor = descriptor_pool.Default().AddSerializedFile(_file.SerializeToString())
        builder.BuildMessageAndEnumDescriptors(_descriptor, globals())
        builder.BuildTopDescriptorsAndMessages(_descriptor, __name__, globals())
