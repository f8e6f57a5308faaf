"""Capture of a live cluster on loopback, side by side with capture of the same segments from disk.

A broker of the live tests (Kafka 4.3.1, one process) loads a copy of the logs. Both are `./spark-submit.sh capture`
into new warehouses, in turns; the time is that of the step which the job itself tells, Spark's start-up aside.
"""

import base64
import re
import shutil
import statistics
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from tests.benchmarks.runs import run, step_seconds
from tests.live.broker import BrokerTopic, LiveBroker
from tests.live.kafka_home import kafka_home
from tests.maven import Unavailable

LOADED: Final = re.compile(
    r"Finished loading of metadata from (\S+) with epoch \d+ in (\d+)ms where (\d+)ms was spent in the scheduler\. "
    r"Loaded (\d+) records"
)
LOAD_TIMEOUT_S: Final = 300
AIM: Final = 0.5
"""Of the speed from disk."""
LEADER_EPOCH: Final = 1_000
"""Above those of the batches: a broker does not go back."""


def compare(topic: str, logs: Path, turns: int, scratch: Path) -> None:
    """Print one line for a topic whose partition folders are in `logs`."""
    try:
        home = kafka_home()
    except Unavailable as error:
        print(f"{topic}: no live capture: {error}")
        return
    loaded, info = _loadable(topic, logs, scratch / "loadable")
    size_bytes = sum(path.stat().st_size for path in loaded.glob("*/*.log"))
    with LiveBroker(home, scratch / "broker", topics=[info], logs=loaded) as broker:
        shutil.rmtree(loaded)
        _tell_load(topic, broker, len(info.leader_epochs))
        ways = {"disk": ["--segments", str(logs)], "live": ["--bootstrap-server", broker.address]}
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(turns):
            for way, words in ways.items():
                seconds[way].append(_capture(topic, words, scratch / "captured"))
    disk, live = (statistics.median(seconds[way]) for way in ways)
    print(
        f"{topic}: capture of {size_bytes / 1e6:,.0f} MB from disk {disk:.1f} s, from a broker {live:.1f} s, "
        f"{size_bytes / 1e6 / live:,.0f} MB/s; speed against disk {disk / live:.2f} (the aim is {AIM})",
        flush=True,
    )


def _tell_load(topic: str, broker: LiveBroker, partition_count: int) -> None:
    """Print how long the broker's coordinator needed for the log, in its one loader thread."""
    deadline = monotonic() + LOAD_TIMEOUT_S
    while True:
        found = {place: tuple(map(int, numbers)) for place, *numbers in LOADED.findall(broker.log.read_text())}
        of_topic = [numbers for place, numbers in found.items() if place.startswith(topic)]
        if len(of_topic) == partition_count:
            break
        if monotonic() > deadline:
            print(f"{topic}: a broker had {len(of_topic)} of {partition_count} partitions after {LOAD_TIMEOUT_S} s")
            return
        sleep(0.5)
    seconds = sum(took - waited for took, waited, _ in of_topic) / 1000
    records = sum(count for _, _, count in of_topic)
    print(
        f"{topic}: the broker itself loads {records:,} records in {seconds:.1f} s, {records / seconds:,.0f}/s",
        flush=True,
    )


def _capture(topic: str, words: list[str], warehouse: Path) -> float:
    """Capture once into a new warehouse; the seconds of the step."""
    shutil.rmtree(warehouse, ignore_errors=True)
    command = ["./spark-submit.sh", "capture", *words, "--topic", topic, "--warehouse", str(warehouse)]
    return step_seconds(run(command, accepted=(0, 3)).output)["capture"]


def _loadable(topic: str, logs: Path, folder: Path) -> tuple[Path, BrokerTopic]:
    """A log directory as a broker takes it, by links: each folder must name its topic id."""
    topic_id = base64.urlsafe_b64encode(topic.encode().ljust(16, b"_")[-16:]).decode().rstrip("=")
    partitions = sorted(logs.glob(f"{topic}-[0-9]*"))
    for partition in partitions:
        made = folder / partition.name
        made.mkdir(parents=True)
        for file in partition.glob("*.log"):
            (made / file.name).symlink_to(file.resolve())
        (made / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}\n")
    return folder, BrokerTopic(topic, topic_id, [LEADER_EPOCH] * len(partitions), {"cleanup.policy": "compact"})
