"""What a task of the audit is given, and what it gives."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

import pyarrow as pa

from coordinator_core.inference.settings import InferenceSettings
from jobs.silver_reader import SilverFiles
from jobs.silver_rows import rows_table
from jobs.sinks import PartTarget, PartWriter, WrittenFile
from schemas.tables.declare import Table


@dataclass(frozen=True, slots=True)
class AuditWork:
    """Some log partitions of one coordinator topic."""

    cluster_id: str
    number: int
    topic: str
    log_partitions: tuple[int, ...]
    files: SilverFiles
    targets: Mapping[str, PartTarget]
    inference: InferenceSettings


@dataclass(slots=True)
class AuditDone:
    """What one task did. `days`: rows towards gold.share_group_summary, by the coordinator topic that knows them."""

    files: dict[str, list[WrittenFile]] = field(default_factory=dict)
    days: list[NamedTuple] = field(default_factory=list)


class AuditParts:
    """The part files of one task, opened when first needed."""

    def __init__(self, work: AuditWork) -> None:
        self._work = work
        self._writers: dict[str, PartWriter] = {}
        self._stack = ExitStack()
        self.done = AuditDone()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if error is None:
            for name, writer in self._writers.items():
                self.done.files[name] = [writer.close()]

    def write_rows(self, table: Table, rows: Sequence[NamedTuple]) -> None:
        """Append rows of the core to the part file of a gold table."""
        if rows:
            self.write(table, rows_table(table, rows, {}))

    def write(self, table: Table, rows: pa.Table) -> None:
        """Append rows to the part file of a gold table, `cluster_id` left out."""
        if not rows.num_rows:
            return
        writer = self._writers.get(table.full_name)
        if writer is None:
            target = self._work.targets[table.full_name]
            part = PartWriter(target, f"part-{self._work.number:05d}", {"cluster_id": self._work.cluster_id})
            writer = self._writers[table.full_name] = self._stack.enter_context(part)
        writer.write(rows)
