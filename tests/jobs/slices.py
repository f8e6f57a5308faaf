"""A log directory in pieces, as several nights find it."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from coordinator_core.bytes.log.scan import scan_segment

Place = tuple[Path, int, int]
"""A batch: its segment, and where it begins and ends there."""


def slices_of(logs: Path, into: Path, cuts: Callable[[str], Sequence[float]]) -> list[Path]:
    """Copies of a log directory, each with a range of every log partition: the batches between the cuts (shares of all
    its batches) of its name."""
    parts = [into / f"part-{index}" for index in range(len(cuts("")) + 1)]
    for folder in sorted(path for path in logs.iterdir() if path.is_dir()):
        batches = [place for segment in sorted(folder.glob("*.log")) for place in _places_of(segment)]
        bounds = [0, *(int(len(batches) * share) for share in cuts(folder.name)), len(batches)]
        for part, (first, end) in zip(parts, pairwise(bounds), strict=True):
            _write(part / folder.name, batches[first:end])
    return parts


def _places_of(segment: Path) -> list[Place]:
    scan = scan_segment(np.fromfile(segment, np.uint8), base_offset=int(segment.stem), is_last=True)
    places = zip(scan.batches.position.tolist(), scan.batches.size.tolist(), strict=True)
    return [(segment, position, position + size) for position, size in places]


def _write(folder: Path, batches: Sequence[Place]) -> None:
    """A segment of the batches of each segment, named by its first batch; nothing for none."""
    for segment in sorted({path for path, _, _ in batches}):
        own = [place for place in batches if place[0] == segment]
        data = segment.read_bytes()[own[0][1] : own[-1][2]]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{int.from_bytes(data[:8], 'big'):020}.log").write_bytes(data)
