"""A log that brokers of several releases wrote in place, one after the other, and what each of them answered.

python -m tools.upgraded_log OUT                        0.9 to 3.9 in eight steps, with ZooKeeper
python -m tools.upgraded_log OUT --chain kraft          3.5, 3.9, 4.2, 4.4, with KRaft
python -m tools.upgraded_log OUT --release 3.5.2 --release 4.4.0

Each release starts over the same folder. Its own clients join groups, commit, leave, run transactions, and then ask for
the committed offsets of every group so far. OUT/N-VERSION/ has the internal topics after that step (`logs/`) and the
answers (`answers.json`). Then the steps are replayed: each night reads one of them. After each night the ledger's
offsets are compared with what the broker answered then, and at the end as of each step's time. One run over the last
step has to make the same tables, in silver and gold, and its export the same bytes. Exit code 1 where anything differs.

Maven fetches the brokers; a run takes minutes.
"""

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kafka.protocol.admin import UpdateFeaturesRequest

from coordinator_core.bytes.kafka_versions import KNOWN_VERSIONS, METADATA_VERSION, production_level
from jobs.bronze.export_segments import export_segments
from jobs.delta.times import epoch_ms
from jobs.settings import BrokerAddress
from jobs.sources.broker import Broker
from schemas import cluster_metadata, consumer_offsets, share_group_state, transaction_state
from schemas.tables import TABLES
from tests.cases.harness import CLUSTER_ID, Ledger
from tests.jobs.in_process import in_process
from tests.live.broker import CLIENT_SETTINGS
from tests.live.release import ReleasedBroker, ReleasedClients, ReleaseHome, release_home

CHAINS: Final[Mapping[str, Sequence[str]]] = {
    "zookeeper": ("0.9.0.1", "0.10.2.2", "0.11.0.3", "1.1.1", "2.4.1", "2.8.2", "3.5.2", "3.9.1"),
    "kraft": ("3.5.2", "3.9.1", "4.2.0", "4.4.0"),
}
TOPIC: Final = "orders"
PARTITIONS: Final = 3
RECORDS_A_STEP: Final = 9
INTERNAL: Final = (consumer_offsets.TOPIC, share_group_state.TOPIC, transaction_state.TOPIC, cluster_metadata.TOPIC)
FIRST_WITH_TRANSACTIONS: Final = (0, 11)
FIRST_WITH_CONSUMER_PROTOCOL: Final = (4, 0)
UPGRADE: Final = 1
"""Upgrade type of UpdateFeatures."""
SETTINGS: Final[Mapping[str, str | int]] = {
    **CLIENT_SETTINGS,
    "auto.create.topics.enable": "true",
    "num.partitions": PARTITIONS,
    "log.segment.bytes": 64 * 1024 * 1024,
    # a shutdown that takes too long must not delay the next release
    "controlled.shutdown.max.retries": 1,
}
NOT_COMPARED: Final = frozenset({"captured_at", "capture_id", "source", "seen_at", "observed_at", "learned_at"})
"""Columns about which run saw something."""

Offsets = dict[tuple[str, int], int]
"""By group and partition."""


@dataclass(frozen=True, slots=True)
class ReleaseRun:
    """The results of one release."""

    version: str
    logs: Path
    at_ms: int
    """After its clients ran, before it stopped."""
    answers: Offsets


def make_steps(output: Path, versions: Sequence[str], *, zookeeper: bool) -> list[ReleaseRun]:
    """Run the releases over one folder. Raises Unavailable and ProgramError."""
    steps: list[ReleaseRun] = []
    groups: set[str] = set()
    broker: ReleasedBroker | None = None
    try:
        for number, version in enumerate(versions, 1):
            home = release_home(version)
            if broker is None:
                broker = ReleasedBroker(home, output / "broker", settings=SETTINGS, zookeeper=zookeeper)
            else:
                broker.upgrade(home)
            if home.release in KNOWN_VERSIONS:
                _finalize(broker, home)
            with ReleasedClients(broker) as clients:
                groups |= _act(clients, home, number)
                answers = {
                    (group_id, partition): offset
                    for group_id in sorted(groups)
                    for partition, offset in enumerate(
                        clients.ask("committed", group=group_id, topic=TOPIC, partitions=PARTITIONS)
                    )
                    if offset >= 0
                }
            at_ms = int(time.time() * 1000)
            broker.stop()
            steps.append(
                _kept(output / f"{number}-{version}", broker.data, ReleaseRun(version, Path(), at_ms, answers))
            )
    finally:
        if broker is not None:
            broker.stop()
    return steps


def _finalize(broker: ReleasedBroker, home: ReleaseHome) -> None:
    """Upgrade metadata.version and group features to the release's default."""
    version = next(it for it in KNOWN_VERSIONS if it == home.release)
    update = UpdateFeaturesRequest.FeatureUpdateKey
    levels = {METADATA_VERSION: production_level(version), "group.version": 1}
    request = UpdateFeaturesRequest(
        timeout_ms=30_000,
        feature_updates=[
            update(feature=name, max_version_level=level, upgrade_type=UPGRADE) for name, level in levels.items()
        ],
        validate_only=False,
        min_version=1,
        max_version=1,
    )
    with Broker.connect(BrokerAddress(broker.address)) as connection:
        connection.send(request, error_code=lambda it: it.error_code)


def _act(clients: ReleasedClients, home: ReleaseHome, number: int) -> set[str]:
    """Run the clients of one release. Returns the groups that they used."""
    own = f"of-{home.version}"
    clients.ask("produce", topic=TOPIC, partitions=PARTITIONS, count=RECORDS_A_STEP)
    clients.ask("join", client=f"lasting-{number}", group="lasting", topic=TOPIC, protocol="classic")
    clients.ask("consume", client=f"lasting-{number}", count=RECORDS_A_STEP)
    clients.ask("join", client=f"own-{number}", group=own, topic=TOPIC, protocol="classic")
    clients.ask("consume", client=f"own-{number}", count=RECORDS_A_STEP)
    clients.ask("leave", client=f"own-{number}")
    clients.ask("leave", client=f"lasting-{number}")
    clients.ask("commit", group="by-hand", topic=TOPIC, partition=number % PARTITIONS, offset=10 * number)
    used = {"lasting", own, "by-hand"}
    if home.release >= FIRST_WITH_TRANSACTIONS:
        for end, offset in (("commit", 100 * number), ("abort", 100 * number + 1)):
            transaction: dict[str, str | int] = {"end": end, "partition": number % PARTITIONS, "offset": offset}
            clients.ask("transact", id="writer", group="in-transactions", topic=TOPIC, **transaction)
        used.add("in-transactions")
    if home.release >= FIRST_WITH_CONSUMER_PROTOCOL:
        clients.ask("join", client=f"modern-{number}", group="modern", topic=TOPIC, protocol="consumer")
        clients.ask("consume", client=f"modern-{number}", count=RECORDS_A_STEP)
        clients.ask("leave", client=f"modern-{number}")
        used.add("modern")
    return used


def _kept(folder: Path, data: Path, step: ReleaseRun) -> ReleaseRun:
    logs = folder / "logs"
    logs.mkdir(parents=True)
    for path in sorted(data.iterdir()):
        if path.is_dir() and path.name.rpartition("-")[0] in INTERNAL:
            shutil.copytree(path, logs / path.name)
    facts = {
        "version": step.version,
        "at_ms": step.at_ms,
        "offsets": [[*place, offset] for place, offset in sorted(step.answers.items())],
    }
    (folder / "answers.json").write_text(json.dumps(facts, indent=1) + "\n")
    return ReleaseRun(step.version, logs, step.at_ms, step.answers)


def read_steps(output: Path) -> list[ReleaseRun]:
    """The steps of an earlier run."""
    folders = (it for it in output.iterdir() if (it / "answers.json").is_file())
    steps = []
    for folder in sorted(folders, key=lambda it: int(it.name.partition("-")[0])):
        facts = json.loads((folder / "answers.json").read_text())
        answers = {(group_id, partition): offset for group_id, partition, offset in facts["offsets"]}
        steps.append(ReleaseRun(facts["version"], folder / "logs", facts["at_ms"], answers))
    return steps


# --- comparisons


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison. `differences`: in words."""

    what: str
    point_count: int
    differences: Sequence[str]


def compare(steps: Sequence[ReleaseRun], work: Path) -> list[Compared]:
    """Replay the steps in nights, and in one run, and compare."""
    nights, whole = Ledger(work / "nights"), Ledger(work / "whole")
    compared = []
    for number, step in enumerate(steps, 1):
        nights.night(step.logs, number=number)
        title = f"offsets after the night of {step.version}"
        compared.append(_offsets_compared(title, step.answers, offsets_of(nights, None)))
    whole.night(steps[-1].logs)
    for step in steps:
        title = f"offsets as of {step.version}, in one run"
        compared.append(_offsets_compared(title, step.answers, offsets_of(whole, step.at_ms)))
    compared.append(_tables_compared(nights, whole))
    compared.append(_export_compared(whole, steps[-1].logs, work / "export"))
    return compared


def offsets_of(ledger: Ledger, at_ms: int | None) -> Offsets:
    """Committed offsets of the topic, now or as of a time."""
    rows = [
        row for row in ledger.rows("silver.offset_commits") if row["outcome"] == "APPLIED" and row["topic"] == TOPIC
    ]
    if at_ms is not None:
        rows = [row for row in rows if epoch_ms(row["applied_at"] or row["commit_time"]) <= at_ms]
    rows.sort(key=lambda row: row["applied_log_offset"])
    newest = {(row["group_id"], row["partition"]): row["committed_offset"] for row in rows}
    return {place: offset for place, offset in newest.items() if offset is not None}


def _offsets_compared(what: str, answers: Offsets, known: Offsets) -> Compared:
    differences = [
        f"{group_id} {TOPIC}-{partition}: broker {answers.get((group_id, partition))}, "
        f"ledger {known.get((group_id, partition))}"
        for group_id, partition in sorted(answers.keys() | known.keys())
        if answers.get((group_id, partition)) != known.get((group_id, partition))
    ]
    return Compared(what, len(answers), differences)


def _tables_compared(nights: Ledger, whole: Ledger) -> Compared:
    """Compare all rows of silver and gold."""
    count, differences = 0, []
    for name in TABLES:
        if not name.startswith(("silver.", "gold.")):
            continue
        first, second = _rows(nights, name), _rows(whole, name)
        count += len(second)
        if first != second:
            only = [*(it for it in first if it not in second), *(it for it in second if it not in first)]
            differences.append(f"{name}: {len(first)} rows and {len(second)}; the first that differ: {only[:2]}")
    return Compared("tables of nights cut at the upgrades and of one run", count, differences)


def _rows(ledger: Ledger, name: str) -> list[str]:
    columns = [it for it in TABLES[name].column_names if it not in NOT_COMPARED]
    return sorted(repr([row[it] for it in columns]) for row in ledger.rows(name))


def _export_compared(ledger: Ledger, logs: Path, output: Path) -> Compared:
    """Compare the exported segments of all log partitions, byte for byte."""
    export_segments(in_process(), ledger.warehouse, cluster_id=CLUSTER_ID, output=str(output))
    count, differences = 0, []
    for folder in sorted(logs.iterdir()):
        source, exported = _bytes_of(folder), _bytes_of(output / folder.name)
        count += len(source)
        if source != exported:
            differences.append(f"{folder.name}: {len(source)} bytes, exported {len(exported)}")
    return Compared("bytes of the export", count, differences)


def _bytes_of(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def tell(compared: Sequence[Compared]) -> Iterator[str]:
    """A line for each comparison, and one for each difference."""
    for it in compared:
        yield f"{it.point_count - len(it.differences):,} of {it.point_count:,}  {it.what}"
        yield from (f"  {difference}" for difference in it.differences)


def main(words: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, help="a new folder, or that of an earlier run, which is compared again")
    parser.add_argument("--chain", choices=sorted(CHAINS), default="zookeeper")
    parser.add_argument("--release", action="append", help="in place of the chain; may be repeated")
    asked = parser.parse_args(words)
    output: Path = asked.output.resolve()  # brokers run in their own folders
    steps = read_steps(output) if output.exists() else []
    if not steps:
        steps = make_steps(output, asked.release or CHAINS[asked.chain], zookeeper=asked.chain == "zookeeper")
    shutil.rmtree(output / "work", ignore_errors=True)
    compared = compare(steps, output / "work")
    for line in tell(compared):
        print(line)
    return int(any(it.differences for it in compared))


if __name__ == "__main__":
    sys.exit(main())
