"""Scenarios at random: a cluster, topics, groups of every protocol, and what goes wrong with them.

A scenario is a function of its seed. It has what the shipped ones do not combine: slow consumers with short timeouts,
transactions on both sides, share groups with small limits, brokers that fail, topics that come and go.
"""

import json
import math
import random
from typing import Any, Final

KINDS: Final = (
    *("crash", "stop", "pause", "slow_poll", "rolling_deploy", "broker_failover"),
    *("producer_stall", "delete_records", "add_partitions", "delete_topic", "subscribe", "alter_config"),
    *("delete_group", "delete_share_offsets"),
)

CHANGES: Final = frozenset({"delete_records", "add_partitions", "delete_topic"})


def scenario_text(seed: int) -> str:
    """A scenario file."""
    return "\n".join(_Story(random.Random(seed), seed).lines())


def _pairs(values: dict[str, Any]) -> list[str]:
    # texts, numbers, lists and truth values of JSON are TOML
    return [f"{json.dumps(key) if '.' in key else key} = {json.dumps(value)}" for key, value in values.items()]


def _seconds(fault: dict[str, Any]) -> int:
    """When it strikes."""
    return int(fault["at"].removesuffix("s"))


class _Story:
    def __init__(self, draws: random.Random, seed: int) -> None:
        self._draws = draws
        self._seed = seed
        self._brokers = draws.randint(1, 4)
        self._minutes = draws.choice((3, 6, 10))
        self._topics = [f"t{number}" for number in range(draws.randint(1, 4))]
        self._groups = [self._group(f"g{number}") for number in range(draws.randint(1, 5))]
        self._changed: set[str] = set()
        """Topics whose partitions a fault changes: another one may be refused after that."""

    def lines(self) -> list[str]:
        draws = self._draws
        whole = {"name": f"story-{self._seed}", "duration": f"{self._minutes}m", "seed": self._seed}
        cluster = {
            "brokers": self._brokers,
            "consumer_offsets_partitions": draws.randint(1, 5),
            "share_group_state_partitions": draws.randint(1, 4),
            "share_snapshot_update_records_per_snapshot": draws.choice((0, 3, 20, 500)),
            "share_delivery_count_limit": draws.choice((2, 3, 5)),
            "share_record_lock_duration": f"{draws.choice((5, 15, 30))}s",
            "kafka_version": draws.choice(("4.3", "4.4")),
            "transaction_version": draws.choice((1, 2)),
            "new_cluster": self._happens(0.2),
        }
        settings = {
            "group.consumer.assignment.interval.ms": draws.choice((0, 1000, 3000)),
            "group.consumer.session.timeout.ms": draws.choice((6000, 10000, 45000)),
            "offsets.retention.minutes": draws.choice((1, 10080)),
            "offsets.retention.check.interval.ms": 20000,
        }
        lines = [*_pairs(whole), "start = 2026-01-05T08:00:00Z"]
        lines += ["[cluster]", *_pairs(cluster), "[cluster.settings]", *_pairs(settings)]
        topics = [self._topic(name) for name in self._topics]
        poisoned = {topic["name"] for topic in topics if "poison_every" in topic}
        for topic in topics:
            lines += ["[[topic]]", *_pairs(topic)]
        for group in self._groups:
            if poisoned.isdisjoint(group["topics"]):
                group.pop("on_poison", None)
            lines += ["[[group]]", *_pairs(group)]
        drawn = [self._fault(draws.choice(KINDS)) for _ in range(draws.randint(0, 6))]
        faults = [fault for fault in drawn if fault is not None]
        deleted_at = {fault["topic"]: _seconds(fault) for fault in faults if fault["kind"] == "delete_topic"}
        for fault in faults:
            # nobody produces to a topic that was deleted
            if fault["kind"] != "producer_stall" or _seconds(fault) < deleted_at.get(fault["topic"], math.inf):
                lines += ["[[fault]]", *_pairs(fault)]
        return lines

    def _happens(self, share: float) -> bool:
        return self._draws.random() < share

    def _topic(self, name: str) -> dict[str, Any]:
        draws = self._draws
        batch_records = draws.choice((1, 5, 20))
        topic: dict[str, Any] = {"name": name, "partitions": draws.randint(1, 6), "batch_records": batch_records}
        topic["rate"] = draws.choice((1.0, 20.0, 100.0))
        if self._happens(0.25):
            topic |= {"transaction_records": batch_records * draws.choice((1, 3)), "abort_every": draws.choice((0, 5))}
        if self._happens(0.2):
            topic["retention"] = f"{draws.choice((30, 120))}s"
        if self._happens(0.3):
            topic["poison_every"] = draws.choice((13, 50))
        return topic

    def _group(self, name: str) -> dict[str, Any]:
        draws = self._draws
        protocol, members = (
            draws.choice(("classic", "classic", "consumer", "share", "share", "streams")),
            draws.randint(1, 5),
        )
        group: dict[str, Any] = {
            "name": name,
            "protocol": protocol,
            "topics": draws.sample(self._topics, draws.randint(1, len(self._topics))),
            "members": members,
            "start_after": f"{draws.choice((0, 5, 30))}s",
            "stagger": f"{draws.choice((0, 1, 7))}s",
        }
        if protocol == "share":
            return group | self._sharing()
        group |= {"commit_interval": f"{draws.choice((300, 1000, 5000))}ms", "rate": draws.choice((5.0, 100.0, 1000.0))}
        if self._happens(0.25):
            group |= {"commits": "transactional", "abort_every": draws.choice((0, 3))}
        if protocol != "streams" and self._happens(0.3):
            group["static"] = True
        if protocol == "classic":
            group["session_timeout"] = f"{draws.choice((6, 10, 45))}s"
            group["max_poll_interval"] = f"{draws.choice((10, 30, 300))}s"
            group["assignors"] = draws.choice((["range"], ["sticky"], ["cooperative-sticky"], ["roundrobin", "range"]))
        if protocol == "streams":
            group |= {"repartition": self._happens(0.5), "stateful": self._happens(0.5)}
        return group

    def _sharing(self) -> dict[str, Any]:
        draws = self._draws
        sharing: dict[str, Any] = {
            "poll_interval": f"{draws.choice((200, 1000, 3000))}ms",
            "max_poll_records": draws.choice((1, 10, 100)),
            "isolation_level": draws.choice(("read_committed", "read_uncommitted", "read_uncommitted")),
            "acquire_mode": draws.choice(("batch_optimized", "record_limit")),
        }
        if self._happens(0.6):
            sharing |= {
                "acknowledge": "explicit",
                "on_poison": draws.choice(("skip", "reject", "release", "time_out")),
                "release_every": draws.choice((0, 7, 50)),
                "renew_every": draws.choice((0, 0, 9)),
            }
        if self._happens(0.3):
            sharing["delivery_count_limit"] = draws.choice((2, 4))
        return sharing

    def _fault(self, kind: str) -> dict[str, Any] | None:
        """None: this cluster cannot have such a fault."""
        draws = self._draws
        group, topic = draws.choice(self._groups), draws.choice(self._topics)
        protocol, member = group["protocol"], draws.randrange(group["members"])
        fault: dict[str, Any] = {"kind": kind, "at": f"{draws.randint(15, self._minutes * 60 - 30)}s"}
        seconds = f"{draws.randint(2, 60)}s"
        readers = [it for it in self._groups if topic in it["topics"]]
        is_fixed = any(it["protocol"] == "streams" for it in readers)
        if kind in CHANGES:
            if topic in self._changed:
                return None
            self._changed.add(topic)
        match kind:
            case "broker_failover":
                return (
                    fault | {"broker": draws.randint(1, self._brokers), "duration": seconds}
                    if self._brokers > 1
                    else None
                )
            case "producer_stall":
                return fault | {"topic": topic, "duration": seconds}
            case "delete_records":
                return fault | {"topic": topic, "partition": 0, "offset": draws.randint(1, 200)}
            case "add_partitions":
                return None if is_fixed else fault | {"topic": topic, "partitions": draws.randint(7, 9)}
            case "delete_topic":
                is_fixed = is_fixed or any(it.get("commits") == "transactional" for it in readers)
                return None if is_fixed else fault | {"topic": topic}
            case "subscribe":
                topics = draws.sample(self._topics, draws.randint(1, len(self._topics)))
                is_fixed = protocol == "streams" or any(it.get("commits") == "transactional" for it in self._groups)
                return None if is_fixed else fault | {"group": group["name"], "member": member, "topics": topics}
            case "alter_config" | "delete_share_offsets" if protocol != "share":
                return None
            case "alter_config":
                config = {"config": "share.delivery.count.limit", "value": draws.choice((2, 6))}
                return fault | {"group": group["name"], **config}
            case "delete_share_offsets":
                return fault | {"group": group["name"], "topic": group["topics"][0]}
            case "delete_group":
                return fault | {"group": group["name"]}
            case "rolling_deploy":
                return fault | {"group": group["name"], "duration": seconds}
        return fault | {"group": group["name"], "member": member, "duration": seconds}
