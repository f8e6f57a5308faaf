"""Capture of a broker's own directory, whose files change while they are listed and opened."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.bronze import tasks
from jobs.sources import segments
from tests.cases.harness import Ledger
from tests.cases.small_logs import NOON_MS, SmallLog

pytestmark = pytest.mark.nights

NIGHTS = 12
SEGMENT_RECORDS = 6


class Writer:
    """Does to a log partition what a broker does, one file operation at a time: appends half batches, rolls, compacts
    (`Log.replaceSegments`: .cleaned, .swap, the old ones .deleted, then the final name), and deletes by retention.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.log = SmallLog()
        self.folder = root / f"{self.log.topic}-0"
        self.folder.mkdir(parents=True)
        self.segments: dict[int, list[int]] = {0: []}
        """By base offset: the offsets in it."""
        self.captured_to = 0
        self.path(0).touch()
        self.steps = self.life()

    def path(self, base_offset: int, ending: str = "") -> Path:
        """A segment's file."""
        return self.folder / f"{base_offset:020d}.log{ending}"

    def life(self) -> Iterator[None]:
        """One operation after another."""
        while True:
            doing = self.random.choices([self.append, self.clean, self.delete], [8, 2, 1])[0]
            yield from doing()

    def append(self) -> Iterator[None]:
        """A commit, whose batch is first half on disk."""
        offset, active = self.log.next_offset, max(self.segments)
        if len(self.segments[active]) >= SEGMENT_RECORDS:
            active = offset
            self.segments[active] = []
            self.path(active).touch()
            yield
        self.log.commit("g", self.random.randrange(3), offset, NOON_MS + offset)
        batch = self.log.batches[offset]
        cut = self.random.randrange(1, len(batch))
        for part in (batch[:cut], batch[cut:]):
            with self.path(active).open("ab") as file:
                file.write(part)
            yield
        self.segments[active].append(offset)

    def clean(self) -> Iterator[None]:
        """Merge two captured segments into one; some of their records go."""
        bases = [base for base in sorted(self.segments) if base < max(self.segments)]
        group = [base for base in bases if base < self.captured_to - SEGMENT_RECORDS][-2:]
        if not group:
            return
        offsets = [offset for base in group for offset in self.segments[base] if self.random.random() < 0.7]
        new = group[0]
        self.path(new, ".cleaned").write_bytes(b"".join(self.log.batches[offset] for offset in offsets))
        yield
        self.path(new, ".cleaned").rename(self.path(new, ".swap"))
        yield
        for base in reversed(group):
            self.path(base).rename(self.path(base, ".deleted"))
            del self.segments[base]
            yield
        self.path(new, ".swap").rename(self.path(new))
        self.segments[new] = offsets
        yield
        for base in group:
            self.path(base, ".deleted").unlink()
            yield

    def delete(self) -> Iterator[None]:
        """Retention takes the first segment, if it was captured and others are left."""
        first, *others = sorted(self.segments)
        if len(others) < 3 or others[0] > self.captured_to - SEGMENT_RECORDS:
            return
        self.path(first).rename(self.path(first, ".deleted"))
        del self.segments[first]
        yield
        self.path(first, ".deleted").unlink()
        yield

    def go_on(self, steps_max: int) -> None:
        """Some more steps."""
        for _ in range(self.random.randrange(steps_max + 1)):
            next(self.steps)


@pytest.mark.parametrize("seed", range(1))
def test_a_folder_that_a_broker_writes_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Every capture is clean, and they together have the offsets and groups of one read of all that ever was."""
    writer = Writer(tmp_path / "logs", seed)
    ledger = Ledger(tmp_path / "often")

    def meanwhile(module: Any, name: str) -> None:
        real = getattr(module, name)

        def interposed(*arguments: Any, **named: Any) -> Any:
            if writer.random.random() < 0.3:
                writer.go_on(3)
            return real(*arguments, **named)

        monkeypatch.setattr(module, name, interposed)

    meanwhile(segments, "_segments")
    meanwhile(tasks, "map_segment")
    for number in range(1, NIGHTS + 1):
        for _ in range(10):
            writer.go_on(4)
        begun = writer.log.next_offset
        captured = ledger.capture(tmp_path / "logs", number=number)
        assert captured.is_clean, captured.faults
        writer.captured_to = begun
        assert [r["kind"] for r in ledger.rows("bronze.coverage") if r["kind"] not in ("CAPTURED", "COMPACTED")] == []
    monkeypatch.undo()
    while any(writer.folder.glob("*.log.*")):
        next(writer.steps)
    assert ledger.night(tmp_path / "logs", number=NIGHTS + 1).exit_code == 0
    once = Ledger(tmp_path / "once")
    assert once.night(writer.log.write(tmp_path / "all"), number=1).exit_code == 0
    for name in ("bronze.record_batches", "silver.offset_commits"):
        mine, whole = (
            [
                {name: value for name, value in row.items() if name not in ("source", "captured_at", "capture_id")}
                for row in sorted(it.rows(name), key=str)
            ]
            for it in (ledger, once)
        )
        key = "base_offset" if name.startswith("bronze") else "log_offset"
        last = max(row[key] for row in mine)
        assert sorted(mine, key=lambda row: row[key]) == sorted(
            (row for row in whole if row[key] <= last), key=lambda row: row[key]
        )
