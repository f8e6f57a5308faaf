"""What a night costs as the log grows: a quarter of it, all but a hundredth, the hundredth, and nothing.

    python -m tests.benchmarks.growth --logs DIR        DIR holds <topic>-<partition>/*.log

Each log partition is cut at batches, so that shares of the records are meant. The last two nights find the whole log
directory, as a broker's stays where it is and grows. Times are those of the steps as the job tells them, Spark's
start-up aside. Figures go to build/growth.csv and, as a picture, to build/growth.svg.
"""

import argparse
import csv
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.benchmarks.runs import ROOT, STEPS, run, step_seconds
from tests.jobs.slices import slices_of

BUILD: Final = ROOT / "build"
HEIGHT: Final = 300
COLOURS: Final = ("#8da0cb", "#66c2a5", "#fc8d62")
"""Of the steps."""
SHARES: Final = (0.25, 0.99)
"""Where the log is cut."""


class Night(NamedTuple):
    """One run, and what it read: a share of all records."""

    name: str
    share: float
    capture: float
    replay: float
    audit: float

    @property
    def seconds(self) -> float:
        """Of all steps."""
        return self.capture + self.replay + self.audit


def measured(logs: Path, scratch: Path) -> list[Night]:
    """The nights, one after the other."""
    first, middle, _ = slices_of(logs, scratch / "logs", lambda _: SHARES)
    most = scratch / "most"
    for folder in sorted({path.name for part in (first, middle) for path in part.iterdir()}):
        (most / folder).mkdir(parents=True)
        for part in (first, middle):
            for segment in (part / folder).glob("*.log"):
                (most / folder / segment.name).symlink_to(segment)
    quarter, warehouse = scratch / "quarter", scratch / "warehouse"
    return [
        _night("a quarter, at once", SHARES[0], first, quarter),
        _night("99 %, at once", SHARES[1], most, warehouse),
        _night("1 % more", 1 - SHARES[1], logs, warehouse),
        _night("nothing new", 0, logs, warehouse),
    ]


def _night(name: str, share: float, logs: Path, warehouse: Path) -> Night:
    command = ["./spark-submit.sh", "nightly", "--segments", str(logs), "--warehouse", str(warehouse)]
    told = step_seconds(run(command, accepted=(0, 3)).output)
    night = Night(name, share, **{step: told.get(step, 0.0) for step in STEPS})
    print(
        f"{name}: {night.seconds:.1f} s ({', '.join(f'{step} {told.get(step, 0.0):.1f}' for step in STEPS)})",
        flush=True,
    )
    return night


def tell(nights: Sequence[Night]) -> None:
    """The ratios that matter, the table and the picture."""
    quarter, most, more, nothing = (night.seconds for night in nights)
    print(f"{SHARES[1] / SHARES[0]:.2f} times the data takes {most / quarter:.2f} times as long")
    print(f"1 % more, less what nothing costs, takes {100 * (more - nothing) / most:.1f} % of all the rest")
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "growth.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Night._fields)
        writer.writerows(nights)
    (BUILD / "growth.svg").write_text(picture(nights))
    print(f"see {BUILD / 'growth.csv'} and {BUILD / 'growth.svg'}")


def picture(nights: Sequence[Night]) -> str:
    """A bar for each night, its steps one on the other."""
    highest = max(night.seconds for night in nights)
    parts = [f'<text x="10" y="20">seconds, without the start of Spark: {", ".join(STEPS)}</text>']
    for number, night in enumerate(nights):
        left, base = 30 + 170 * number, HEIGHT + 60.0
        for step, colour in zip(STEPS, COLOURS, strict=True):
            height = HEIGHT * getattr(night, step) / highest
            base -= height
            parts.append(f'<rect x="{left}" y="{base:.1f}" width="110" height="{height:.1f}" fill="{colour}"/>')
        parts.append(f'<text x="{left}" y="{base - 6:.1f}">{night.seconds:.1f} s</text>')
        parts.append(f'<text x="{left}" y="{HEIGHT + 80}">{night.name}</text>')
    size = f'width="{50 + 170 * len(nights)}" height="{HEIGHT + 100}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">{"".join(parts)}</svg>\n'


def main() -> None:
    """Measure the nights over one log directory."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--logs", type=Path, required=True)
    logs = parser.parse_args().logs
    if not logs.is_dir():
        sys.exit(f"{logs} is no folder")
    scratch = Path(tempfile.mkdtemp())
    try:
        tell(measured(logs, scratch))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
