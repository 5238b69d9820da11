"""An Iceberg table, as its sink uses it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or, Reference
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform

from dsv2.base.secrets import ClientOptions
from dsv2.connectors.iceberg.errors import named_errors
from dsv2.connectors.iceberg.small_files import merge_small_files
from dsv2.connectors.iceberg.types import fields_of, iceberg_schema, iceberg_type
from dsv2.connectors.lakehouse.columns import Field
from dsv2.connectors.lakehouse.rows import Changes, aligned
from dsv2.connectors.lakehouse.sink import ConflictError, Written

_RETRIES = "commit.retry.num-retries"
_FIRST_PARTITION = 1000  # the number of the first field of a partition, as in the specification


class OpenIcebergTable:
    """An open table (``OpenTable``)."""

    def __init__(
        self,
        name: str,
        catalog: str,
        schema: dict[str, Any],
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        options: ClientOptions,
    ) -> None:
        """Open the table ``name``, or create it with the other arguments. Raises ``JobError``."""
        with named_errors(f"Cannot open the table {name}", options):
            opened = load_catalog(catalog, **{key: str(value) for key, value in options.items()})
            try:
                self._table = opened.load_table(name)
            except NoSuchTableError:
                self._table = _created(opened, name, schema["fields"], partition_by, properties)
        self._options = options

    @property
    def columns(self) -> Sequence[Field]:
        """Its columns, as Spark writes them in JSON."""
        return fields_of(self._table.schema().as_struct())

    @property
    def partitions(self) -> Sequence[str] | None:
        """The columns that divide it; None if it is divided by something else."""
        fields, schema = self._table.spec().fields, self._table.schema()
        if not all(isinstance(field.transform, IdentityTransform) for field in fields):
            return None
        return [schema.find_field(field.source_id).name for field in fields]

    def refresh(self) -> None:
        """Read its last version."""
        with named_errors("Cannot read the table", self._options):
            self._table.refresh()

    def add_columns(self, columns: Sequence[Field]) -> None:
        """Add columns."""
        with named_errors("Cannot add columns to the table", self._options), self._table.update_schema() as update:
            for column in columns:
                update.add_column(column["name"], iceberg_type(column["type"]))

    def written(self, sink: str) -> Written | None:
        """Return the last micro-batch of a sink; None if it has none."""
        stored = self._table.properties.get(_property(sink))
        return None if stored is None else Written(*map(int, stored.split()))

    def commit(self, changes: Changes, key: Sequence[str], sink: str, written: Written) -> None:
        """Commit changes to the version that was read last, with ``written``. Raises ``ConflictError``."""
        schema = self._table.schema().as_arrow()
        self._table.properties[_RETRIES] = "0"  # only in this object: after a conflict, ``written`` is looked up first
        with (
            _conflicts(),
            named_errors("Cannot write the table", self._options),
            self._table.transaction() as transaction,
        ):
            if key:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that no row has one of the keys
                    transaction.delete(_with_keys(changes, key))
            if len(changes.rows):
                transaction.append(aligned(changes.rows, schema).cast(schema))
            transaction.set_properties({_property(sink): f"{written.batch_id} {written.run}"})

    def merge_small_files(self) -> None:
        """Merge small files of the version that was read last. Raises ``ConflictError``."""
        self._table.properties[_RETRIES] = "0"  # a merge of files that others have replaced meanwhile is of no use
        with _conflicts(), named_errors("Cannot merge the files of the table", self._options):
            merge_small_files(self._table)


@contextmanager
def _conflicts() -> Iterator[None]:
    try:
        yield
    except (CommitFailedException, CommitStateUnknownException) as error:
        raise ConflictError from error


def _created(
    catalog: Catalog,
    name: str,
    columns: Sequence[Field],
    partition_by: Sequence[str],
    properties: Mapping[str, str],
) -> Table:
    schema = iceberg_schema(columns)
    parts = [
        PartitionField(schema.find_field(column).field_id, _FIRST_PARTITION + place, IdentityTransform(), column)
        for place, column in enumerate(partition_by)
    ]
    catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
    return catalog.create_table_if_not_exists(
        name, schema, partition_spec=PartitionSpec(*parts), properties=dict(properties)
    )


def _with_keys(changes: Changes, key: Sequence[str]) -> BooleanExpression:
    """Return the condition that a row has the key of one of ``changes``."""
    keys = pa.concat_tables([changes.rows.select(key), changes.deleted])
    if len(key) == 1:
        return In(term=Reference(key[0]), values=keys[key[0]].to_pylist())
    rows = [
        And(*(EqualTo(term=Reference(name), value=value) for name, value in zip(key, values, strict=True)))
        for values in zip(*(column.to_pylist() for column in keys.columns), strict=True)
    ]
    return Or(*rows) if len(rows) > 1 else rows[0]


def _property(sink: str) -> str:
    return f"dsv2.{sink}"
