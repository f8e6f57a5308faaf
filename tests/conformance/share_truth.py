"""What share consumers themselves saw in a recording: deliveries, acknowledgements, and what admins did to them."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

RESULT_WITHIN_MS: Final = 10_000
"""A client tells the result of an acknowledgement within this time of it."""


class Place(NamedTuple):
    """An offset of a share partition, by names."""

    group_id: str
    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class ShareTruth:
    """Times are the clients' own, epoch ms: of the same machine as the broker's."""

    deliveries: dict[Place, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    """(time, delivery count) of every delivery."""
    acknowledgements: dict[Place, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    """(time, delivery count, type) of those which the broker took: accept, release, reject, IMPLICIT_ACCEPT."""
    attempts: dict[Place, list[tuple[int, int, str]]] = field(default_factory=lambda: defaultdict(list))
    """The same of all, also those which failed or whose result nobody saw."""
    records_deleted: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(topic, partition, first offset kept, time)."""
    limits: dict[str, int] = field(default_factory=dict)
    """Delivery limits of groups that were given one."""
    produced: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    """Records that producers wrote outside transactions, by topic and partition."""

    def limit_of(self, group_id: str) -> int:
        """The delivery limit, which no recording changes while a group reads; Kafka's default if it was not set."""
        return self.limits.get(group_id, 5)


def read_share_truth(recording: Path) -> ShareTruth:
    """The truth of a recording. Empty where it has no share groups."""
    truth = ShareTruth()
    results: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    seen = list(_lines(recording / "truth" / "share_deliveries.jsonl"))
    for event in seen:
        if event["ev"] == "ack_result":
            results[event["group"], event["client"]].append(event)
    for event in seen:
        if event["ev"] == "ack_result":
            continue
        place = Place(event["group"], event["topic"], event["partition"], event["offset"])
        if event["ev"] == "delivered":
            truth.deliveries[place].append((event["ts_ms"], event["delivery_count"]))
        elif event["ack"] != "renew":
            acknowledged = (event["ts_ms"], event["delivery_count"], event["ack"])
            truth.attempts[place].append(acknowledged)
            if _was_taken(event, results[event["group"], event["client"]]):
                truth.acknowledgements[place].append(acknowledged)
    for event in _lines(recording / "truth" / "events.jsonl"):
        match event["ev"]:
            case "records_deleted":
                topic, _, partition = event["tp"].rpartition("-")
                truth.records_deleted.append((topic, int(partition), event["before"], event["ts_ms"]))
            case "group_config" if "share.delivery.count.limit" in event["config"]:
                truth.limits[event["group"]] = int(event["config"]["share.delivery.count.limit"])
            case "produced":
                for partition in range(event["partitions"]):
                    truth.produced[event["topic"], partition] += event["records_per_partition"]
    return truth


def _was_taken(event: Mapping[str, Any], results: list[Mapping[str, Any]]) -> bool:
    """Whether the next result of this client that names the offset is without an error."""
    partition = f"{event['topic']}-{event['partition']}"
    for result in results:
        waited_ms = result["ts_ms"] - event["ts_ms"]
        if 0 <= waited_ms <= RESULT_WITHIN_MS and event["offset"] in result["offsets"].get(partition, ()):
            return result["error"] is None
    return False


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file():
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
