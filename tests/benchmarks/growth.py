"""What a night costs as the log grows: a quarter of it, all but a hundredth, a few batches, a hundredth, and nothing.

    python -m tests.benchmarks.growth --logs DIR [--days N]        DIR holds <topic>-<partition>/*.log

The times of the log are prolonged until it spans 100 days, so that its last hundredth is that of a night: for some
minutes what is said of share records may still change, for a day what is said of groups, and of a log of minutes that
would be all.

Each log partition is cut at batches, so that shares of the records are meant. A night finds the whole log directory as
far as it was written, as a broker's stays where it is and grows. Times are those of the steps as the job tells them,
Spark's start-up aside. Figures go to build/growth.csv and, as a picture, to build/growth.svg. In the temporary folder
it takes three times the room of the log.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import google_crc32c
import numpy as np

from coordinator_core.bytes.log.batch import CRC_START_V2
from coordinator_core.bytes.log.chunk import I64, BatchColumns
from coordinator_core.bytes.log.kernels import HEADER_BYTES_V2
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.inference.facts.calendar import DAY_MS
from tests.benchmarks.runs import STEPS, run_night, write_figures
from tests.benchmarks.skewed import CRC_POSITION, U8

DAYS: Final = 100
HEIGHT: Final = 300
BAR: Final = 110
COLUMN: Final = 170
COLOURS: Final = ("#8da0cb", "#66c2a5", "#fc8d62")
"""Of the steps."""
TIME_POSITIONS: Final = (27, 35)
"""Of the first and the greatest timestamp in the header of a batch (Kafka: DefaultRecordBatch)."""
SHARES: Final = (0.25, 0.99, 0.9903)
"""Where the log is cut. Between the last two each log partition has a batch or two: what they cost is what a run costs
that finds something new everywhere, however little."""
GROWTH_MAX: Final = 4.3
"""The aim: 4 times the data takes at most so many times as long."""
NEW_SHARE_MAX: Final = 0.05
"""The aim: a hundredth more takes at most this share of the time for all the rest, less what nothing new takes. Of a
small log most of that is what something new in each log partition costs at all, which `a few batches` shows."""
NOTHING_SECONDS_MAX: Final = 15


class Night(NamedTuple):
    """One run, and what it read: a share of all records."""

    name: str
    share: float
    capture: float
    replay: float
    audit: float
    cpu: float
    """Processor time of the whole process, Spark's start included."""

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return self.capture + self.replay + self.audit


def measured(logs: Path, scratch: Path, days: int) -> list[Night]:
    """The nights, one after the other."""
    logs, growing = prolonged(logs, scratch / "prolonged", days), scratch / "growing"
    quarter, warehouse = scratch / "quarter", scratch / "warehouse"
    nights = (
        ("a quarter, at once", SHARES[0], 0.0, quarter),
        ("99 %, at once", SHARES[1], 0.0, warehouse),
        ("a few batches", SHARES[2], SHARES[1], warehouse),
        ("1 % more", 1.0, SHARES[2], warehouse),
        ("nothing new", 1.0, 1.0, warehouse),
    )
    found = []
    for name, share, before, into in nights:
        grow(logs, growing, share)
        seconds, cpu = run_night(name, growing, into)
        found.append(Night(name, share - before, **seconds, cpu=cpu))
    return found


def prolonged(logs: Path, into: Path, days: int) -> Path:
    """The same log directory, spanning some days: the distance of all times to the first one grows, those in records
    included. There each number of 8 bytes that may be a time of the log is taken for one."""
    segments = sorted(logs.glob("*/*.log"))
    begins: list[int] = []
    ends: list[int] = []
    for segment in segments:
        batches = scan_segment(np.fromfile(segment, np.uint8), base_offset=int(segment.stem), is_last=True).batches
        begins.append(int(batches.base_timestamp_ms.min(initial=ends[-1] if ends else 2**62)))
        ends.append(int(batches.max_timestamp_ms.max(initial=begins[-1])))
    begin, span = min(begins), max(1, max(ends) - min(begins))
    for segment in segments:
        data = np.fromfile(segment, np.uint8)
        batches = scan_segment(data, base_offset=int(segment.stem), is_last=True).batches
        starts, sizes = batches.position, batches.size
        places, times = _times_in(data, begin, begin + span, batches)
        moved = begin + (times - begin) * (days * DAY_MS) // span
        data[places[:, None] + np.arange(8)] = moved.astype(">i8").view(np.uint8).reshape(-1, 8)
        raw = data.tobytes()
        sums = [
            google_crc32c.value(raw[start + CRC_START_V2 : start + size])
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
        ]
        data[starts[:, None] + CRC_POSITION + np.arange(4)] = np.array(sums, ">u4").view(np.uint8).reshape(-1, 4)
        made = into / segment.parent.name / segment.name
        made.parent.mkdir(parents=True, exist_ok=True)
        data.tofile(made)
    return into


def _times_in(data: U8, begin: int, end: int, batches: BatchColumns) -> tuple[I64, I64]:
    """Where numbers of 8 bytes stand that are times within bounds, and these: in records, and of headers the times."""
    first, last = begin.to_bytes(8, "big"), end.to_bytes(8, "big")
    same = next((index for index in range(8) if first[index] != last[index]), 8)
    places = np.flatnonzero(data[: max(len(data) - 7, 0)] == first[0])
    for index in range(1, same):
        places = places[data[places + index] == first[index]]
    times = data[places[:, None] + np.arange(8)].view(">i8").ravel().astype(np.int64)
    batch = np.searchsorted(batches.position, places, side="right") - 1
    at = places - batches.position[batch]
    is_time = (times >= begin) & (times <= end) & (batch >= 0)
    # an offset with the length behind it may look like a time, and is none
    is_time &= np.isin(at, TIME_POSITIONS) | ((at >= HEADER_BYTES_V2) & (at + 8 <= batches.size[batch]))
    return places[is_time], times[is_time]


def grow(logs: Path, growing: Path, share: float) -> None:
    """Write a log directory on, up to a share of the batches of each log partition: segments that are there get longer,
    as a broker's do."""
    for folder in sorted(path for path in logs.iterdir() if path.is_dir()):
        segments = sorted(folder.glob("*.log"))
        ends = [_ends_of(segment) for segment in segments]
        left = int(share * sum(map(len, ends)))
        for segment, end in zip(segments, ends, strict=True):
            count = min(left, len(end))
            left -= count
            if count:
                _write_on(segment, growing / folder.name / segment.name, int(end[count - 1]))


def _ends_of(segment: Path) -> I64:
    """Of its batches, where each ends."""
    batches = scan_segment(np.fromfile(segment, np.uint8), base_offset=int(segment.stem), is_last=True).batches
    return (batches.position + batches.size).astype(np.int64)


def _write_on(whole: Path, part: Path, end: int) -> None:
    """Copy what a file does not have of another yet, up to a place."""
    part.parent.mkdir(parents=True, exist_ok=True)
    with whole.open("rb") as source, part.open("ab") as target:
        source.seek(target.tell())
        target.write(source.read(end - target.tell()))


def show(nights: Sequence[Night]) -> None:
    """The ratios that matter, the table and the picture. Processor times are less what a run takes that finds nothing
    new: Spark's start."""
    quarter, most, few, more, nothing = nights

    def seconds(night: Night) -> float:
        return night.seconds

    def cpu(night: Night) -> float:
        return night.cpu - nothing.cpu

    for what, of in (("time", seconds), ("processor time", cpu)):
        print(
            f"{SHARES[1] / SHARES[0]:.2f} times the data takes {of(most) / of(quarter):.2f} times the {what} "
            f"(the aim for 4 times is {GROWTH_MAX})"
        )
        for fixed in (nothing, few):
            print(
                f"1 % more, less what {fixed.name} takes, takes {100 * (of(more) - of(fixed)) / of(most):.1f} % "
                f"of the {what} of all the rest (the aim is {100 * NEW_SHARE_MAX:.0f} %)"
            )
    print(f"nothing new takes {nothing.seconds:.1f} s (the aim is {NOTHING_SECONDS_MAX} s)")
    write_figures("growth", nights, picture(nights))


def picture(nights: Sequence[Night]) -> str:
    """A bar for each night, its steps one on the other."""
    highest = max(night.seconds for night in nights)
    width, height = 60 + COLUMN * len(nights), HEIGHT + 110
    parts = [f'<rect width="{width}" height="{height}" fill="white"/>', '<text x="30" y="26">Seconds a night:</text>']
    for number, (step, colour) in enumerate(zip(STEPS, COLOURS, strict=True)):
        left = 160 + 100 * number
        parts.append(f'<rect x="{left}" y="14" width="14" height="14" fill="{colour}"/>')
        parts.append(f'<text x="{left + 20}" y="26">{step}</text>')
    for number, night in enumerate(nights):
        left, base = 30 + COLUMN * number, HEIGHT + 70.0
        for step, colour in zip(STEPS, COLOURS, strict=True):
            step_height = HEIGHT * getattr(night, step) / highest
            base -= step_height
            parts.append(f'<rect x="{left}" y="{base:.1f}" width="{BAR}" height="{step_height:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{left}" y="{base - 6:.1f}">{night.seconds:.1f} s</text>')
        parts.append(f'<text x="{left}" y="{HEIGHT + 92}">{night.name}</text>')
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join(parts)}</svg>\n'


def main() -> None:
    """Measure the nights over one log directory."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--days", type=int, default=DAYS, help=f"that the log spans ({DAYS} by default)")
    arguments = parser.parse_args()
    logs = arguments.logs
    if not logs.is_dir():
        sys.exit(f"{logs} is no folder")
    scratch = Path(tempfile.mkdtemp())
    try:
        show(measured(logs, scratch, arguments.days))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
