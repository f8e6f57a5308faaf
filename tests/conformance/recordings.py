"""Recordings, and the tables which the real jobs make of them: capture and replay on Spark into a Delta warehouse, read
back by delta-rs without Spark.
"""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jobs.bronze.capture import capture
from jobs.delta.warehouse import Warehouse
from jobs.settings import load_settings
from jobs.silver.replay import replay
from jobs.spark.executors import Executor
from tests.conformance.tables import Tables, read_tables
from tests.made_once import MadeOnce

LOGS: Final = "logs"
LOGS_BEFORE: Final = "logs-before"
DECODED_OF: Final = {LOGS: "decoded", LOGS_BEFORE: "decoded-before"}

CAPTURED_AT: Final = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Recording:
    """A recording's folder, and which of its log folders is meant."""

    path: Path
    folder: str = LOGS

    @property
    def name(self) -> str:
        """For test ids and messages."""
        return self.path.name if self.folder == LOGS else f"{self.path.name}/{self.folder}"

    @property
    def logs(self) -> Path:
        """What a broker's log directory holds."""
        return self.path / self.folder

    @property
    def decoded(self) -> Path:
        """Kafka's dumps of these logs."""
        return self.path / DECODED_OF[self.folder]

    @property
    def is_compacted(self) -> bool:
        """Are these the logs after the cleaner, of a recording which also holds those before?"""
        return self.folder == LOGS and (self.path / LOGS_BEFORE).is_dir()


def recordings_in(folder: Path) -> list[Recording]:
    """All recordings of a folder of recordings, and both log folders of those that have two."""
    return [recording for path in sorted(folder.iterdir()) for recording in log_folders(path)]


def log_folders(path: Path) -> list[Recording]:
    """The log folders of one recording; none where the folder is no recording."""
    return [Recording(path, folder) for folder in (LOGS, LOGS_BEFORE) if (path / folder).is_dir()]


SilverOf = Callable[[Recording], Tables]
WarehouseOf = Callable[[Recording], Path]


class SilverMaker:
    """Makes the tables of a recording on first asking, and keeps them for all processes of the run."""

    def __init__(self, executor: Executor, made_once: MadeOnce) -> None:
        self._session = executor
        self._made_once = made_once
        self._made: dict[Recording, Tables] = {}

    def __call__(self, recording: Recording) -> Tables:
        """The tables of a recording's log folder."""
        if recording not in self._made:
            self._made[recording] = read_tables(self.warehouse(recording))
        return self._made[recording]

    def warehouse(self, recording: Recording) -> Path:
        """The warehouse that holds them."""
        cluster_id = cluster_id_of(recording)
        # recordings that are given by options may have one name in two folders
        name = f"silver-{cluster_id}-{zlib.crc32(str(recording.logs.resolve()).encode()):08x}"
        return self._made_once(
            name, lambda root: make_warehouse(self._session, recording.logs, root, cluster_id=cluster_id)
        )


def cluster_id_of(recording: Recording) -> str:
    """The cluster id of a recording's tables."""
    return re.sub(r"\W", "-", recording.name)


def make_warehouse(executor: Executor, logs: Path, root: Path, *, cluster_id: str) -> None:
    """What `nightly --segments LOGS --warehouse ROOT` does up to silver."""
    make_warehouse_of(executor, root, cluster_id=cluster_id, segments=(str(logs.resolve()),))


def make_warehouse_of(executor: Executor, root: Path, *, cluster_id: str, **sources: Any) -> None:
    """The same of other sources: `sources` are fields of `jobs.settings.Settings`."""
    settings = load_settings({"warehouse": str(root), "cluster_id": cluster_id, **sources}, environment={})
    warehouse = Warehouse(settings.warehouse, codec=settings.codec)
    capture(executor, warehouse, settings, capture_id="capture-1", captured_at=CAPTURED_AT)
    replay(
        executor,
        warehouse,
        cluster_id=cluster_id,
        run_id="replay-1",
        started_at=CAPTURED_AT,
        batch_decompressed_bytes_max=settings.batch_decompressed_bytes_max,
        cut_records_min=settings.cut_records_min,
    )
