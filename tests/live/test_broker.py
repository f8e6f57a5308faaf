"""The broker of the live tests itself: it ends when it should, and it is no easy judge."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.conftest import PROJECT_ROOT
from tests.live.broker import LiveBroker
from tests.live.conftest import SHORT
from tests.live.kafka_home import KafkaHome
from tests.live.simulated import Case, Simulated

END_TIMEOUT_S: Final = 20

STARTS_A_BROKER: Final = """
import sys, time
from pathlib import Path
from tests.live.broker import LiveBroker
from tests.live.kafka_home import kafka_home
broker = LiveBroker(kafka_home(), Path(sys.argv[1]))
print(broker.process_id, flush=True)
time.sleep(600)
"""


def test_a_broker_ends_with_whoever_started_it(home: KafkaHome, tmp_path: Path) -> None:
    """A test run which is killed cannot end its broker; the broker notices."""
    run = subprocess.Popen(
        [sys.executable, "-c", STARTS_A_BROKER, str(tmp_path / "broker")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONPATH": str(PROJECT_ROOT)},
    )
    assert run.stdout is not None
    broker = int(run.stdout.readline())
    assert _lives(broker)
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + END_TIMEOUT_S
    while _lives(broker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _lives(broker)


def _lives(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_damaged_log_is_cut(home: KafkaHome, tmp_path: Path) -> None:
    """One bit in the middle of a segment, and the broker keeps what comes before it: it does look at every batch."""
    simulated = Simulated.of(Case(SHORT, {"duration": "30s"}), tmp_path / "case")
    ends = simulated.log_ends
    place = max((place for place in ends if place.startswith("__consumer_offsets")), key=lambda place: ends[place])
    segment = next((simulated.logs / place).glob("*.log"))
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with LiveBroker(home, tmp_path / "broker", topics=simulated.topics(), logs=simulated.logs) as broker:
        found = broker.snapshot()["leo_before"]
    assert 0 < found[place] < ends[place]
    assert {**found, place: ends[place]} == ends
