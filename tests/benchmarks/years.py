"""What a night takes of groups that rebalanced every few hours, for a short time or for years.

    python -m tests.benchmarks.years [--days N N]

What they did last night is the same; only how long they have been there is not. So a night should take the same.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from coordinator_core.bytes import codec
from coordinator_core.bytes.client_protocols import Assignment, Subscription, encode_assignment, encode_subscription
from coordinator_core.bytes.codec import make
from coordinator_core.bytes.log.batch import Record, build_batch
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.live.classic.records import GROUP_METADATA_VALUE_VERSION
from schemas.consumer_offsets import RecordType
from schemas.consumer_offsets.classic import GROUP_METADATA_KEY, GROUP_METADATA_VALUE, MEMBER_METADATA
from tests.benchmarks.generate import OFFSETS_TOPIC, START_MS
from tests.benchmarks.runs import run_night

DAYS: Final = (30, 240)
LOG_PARTITIONS: Final = 8
GROUPS_EACH: Final = 25
REBALANCES_A_DAY: Final = 6
MEMBERS: Final = 4
PARTITIONS: Final = 8
TOPIC: Final = "orders"


def write_days(folder: Path, first: int, end: int) -> None:
    """The log of some days, behind that of the days before."""
    for partition in range(LOG_PARTITIONS):
        segment = folder / f"{OFFSETS_TOPIC}-{partition}" / f"{0:020d}.log"
        segment.parent.mkdir(parents=True, exist_ok=True)
        with segment.open("ab") as out:
            out.writelines(_batches(partition, first, end))


def _batches(partition: int, first: int, end: int) -> Iterator[bytes]:
    """A batch for each generation of each group of a log partition."""
    keys = [
        codec.encode_key(
            OFFSETS_TOPIC, RecordType.GROUP_METADATA, make(GROUP_METADATA_KEY, group=f"g-{partition}-{group}")
        )
        for group in range(GROUPS_EACH)
    ]
    generations = range(first * REBALANCES_A_DAY, end * REBALANCES_A_DAY)
    offsets = count(generations.start * GROUPS_EACH)
    for generation in generations:
        value = _generation(generation)
        at_ms = START_MS + generation * DAY_MS // REBALANCES_A_DAY
        for key, offset in zip(keys, offsets, strict=False):
            yield build_batch([Record(offset, at_ms, key, value)], base_offset=offset)


def _generation(number: int) -> bytes:
    """A classic generation: with each one member goes, and another comes in its place."""
    members = [
        make(
            MEMBER_METADATA,
            member_id=f"consumer-{member}-{(number + member) // MEMBERS}",
            client_id=f"consumer-{member}",
            client_host=f"/10.0.0.{member}",
            rebalance_timeout=300_000,
            session_timeout=45_000,
            subscription=encode_subscription(Subscription(version=3, topics=(TOPIC,))),
            assignment=encode_assignment(
                Assignment(version=3, assigned_partitions=((TOPIC, tuple(range(member, PARTITIONS, MEMBERS))),))
            ),
        )
        for member in range(MEMBERS)
    ]
    value = make(
        GROUP_METADATA_VALUE,
        protocol_type="consumer",
        generation=number + 1,
        protocol="range",
        leader=members[0].member_id,
        current_state_timestamp=START_MS + number * DAY_MS // REBALANCES_A_DAY,
        members=tuple(members),
    )
    return codec.encode_value(OFFSETS_TOPIC, RecordType.GROUP_METADATA, GROUP_METADATA_VALUE_VERSION, value)


def measure(days: int, scratch: Path) -> float:
    """Seconds of the last of so many nights; the ones before are one."""
    logs, warehouse = scratch / f"logs-{days}", scratch / f"warehouse-{days}"
    seconds: dict[str, float] = {}
    for name, first, end in ((f"{days} days at once", 0, days), ("the day after", days, days + 1)):
        write_days(logs, first, end)
        seconds, _ = run_night(name, logs, warehouse)
    return sum(seconds.values())


def main() -> None:
    """Measure a night after few days and after many."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.years", description=__doc__)
    parser.add_argument("--days", type=int, nargs=2, default=DAYS)
    few, many = parser.parse_args().days
    scratch = Path(tempfile.mkdtemp())
    try:
        seconds = [measure(days, scratch) for days in (few, many)]
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{many / few:.1f} times the days take {seconds[1] / seconds[0]:.2f} times a night")


if __name__ == "__main__":
    main()
