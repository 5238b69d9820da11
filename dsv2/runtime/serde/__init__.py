"""Python values as bytes that hold data and nothing else: columns of values, as trees that MessagePack can carry."""
