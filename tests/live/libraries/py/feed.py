"""Writes a few records a second into every partition of the topics, until its input ends."""

import json
import sys
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

settings = json.loads(Path(sys.argv[1]).read_text())
has_ended = threading.Event()


def wait_for_the_end() -> None:
    sys.stdin.read()
    has_ended.set()


threading.Thread(target=wait_for_the_end, daemon=True).start()
producer = Producer({"bootstrap.servers": settings["servers"], "client.id": "feed"})
while not has_ended.is_set():
    for topic, partition_count in settings["partitions"].items():
        for partition in range(partition_count):
            producer.produce(topic, b"x", partition=partition)
    producer.poll(0)
    time.sleep(settings["pause_s"])
producer.flush(5)
