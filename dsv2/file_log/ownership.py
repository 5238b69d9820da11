"""The owner of a ``FileSink``'s folder: a job, and one of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dsv2.base.folders import Folder
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError
from dsv2.file_log.description import Description
from dsv2.file_log.names import is_hidden
from dsv2.file_log.state import has_log, read_log

_OWNER = "_dsv2_checkpoint"  # readers skip names that begin with an underscore


@dataclass(frozen=True, slots=True)
class OutputOwner:
    """The owner of a folder: a job, which may continue from savepoints in several checkpoints, and its checkpoint."""

    job_id: str
    checkpoint_id: str

    def encoded(self) -> bytes:
        """Return the content of the file that identifies the owner."""
        return f"{self.job_id} {self.checkpoint_id}".encode()


@dataclass(frozen=True)
class SinkPlace:
    """The folder of a sink. ``where`` names the sink and its path in errors."""

    folder: Folder
    path: str
    where: str

    def check_unused(self) -> None:
        """Check the folder of a job without a checkpoint.

        Raises:
            ConfigurationError: Another run has written to it.
        """
        if self._has_output():
            raise self._occupied()

    def check(
        self, format: str, partition_by: Sequence[str], owner: OutputOwner, first_batch: int, *, takes_over: bool
    ) -> None:
        """Check the folder of a job that begins with micro-batch ``first_batch``.

        Args:
            format: The format of the sink.
            partition_by: Its partitioning.
            owner: Who is to write to the folder.
            first_batch: The number of the first micro-batch, as the sinks know it.
            takes_over: Whether the job may continue the output of another checkpoint of the same job, because it starts
                from a savepoint.

        Raises:
            ConfigurationError: Another job has written to the folder, or another checkpoint has taken it over.
            CorruptDataError: The log of the folder is damaged.
            IncompatibleCheckpointError: The folder has a micro-batch that is newer than the checkpoint.
        """
        if not self._has_output():
            return
        if not self.belongs_to(owner, takes_over=True):
            raise self._occupied()
        if not self.belongs_to(owner, takes_over=takes_over):
            raise self._taken_over()
        last = read_log(self.folder).last_batch
        description = Description.read(self.folder)
        if description is not None:
            description.check(self.folder, format, partition_by)
        if last >= first_batch:
            raise IncompatibleCheckpointError(
                f"{self.where} already has micro-batch {last}, but the state is older and continues with "
                f"micro-batch {first_batch}. Restore a newer checkpoint, or remove the later micro-batches, which are "
                f"then written again: dsv2 files truncate {self.path} --after {first_batch - 1}"
            )

    def belongs_to(self, owner: OutputOwner, *, takes_over: bool) -> bool:
        """Return whether the folder is that of ``owner``, or, if ``takes_over``, of another checkpoint of its job."""
        found = self.folder.read(_OWNER)
        if found is None:
            return False
        return found == owner.encoded() or (takes_over and found.split()[:1] == owner.encoded().split()[:1])

    def check_owned(self, owner: OutputOwner) -> None:
        """Check before each micro-batch that no other checkpoint has taken over the folder.

        Raises:
            ConfigurationError: One has.
        """
        found = self.folder.read(_OWNER)
        if found is not None and found != owner.encoded():
            raise self._taken_over()

    def own(self, owner: OutputOwner) -> None:
        """Record that the folder belongs to ``owner``."""
        if self.folder.read(_OWNER) != owner.encoded():
            self.folder.write(_OWNER, owner.encoded())

    def _has_output(self) -> bool:
        """Return whether the folder has output of a sink, or files of unknown origin."""
        if has_log(self.folder):
            return read_log(self.folder).last_batch >= 0
        return any(not is_hidden(name) for name in self.folder.tree(""))

    def _occupied(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.where} holds the output of another run. Remove it, choose another path, or continue from "
            f"that run's checkpoint."
        )

    def _taken_over(self) -> ConfigurationError:
        return ConfigurationError(
            f"{self.where} is written by a job that started from a savepoint of this one. Stop one of them. "
            f"To run both, start from the savepoint with as_new_job=True and another path."
        )
