"""What the clients of the recordings did, as far as it explains what their groups went through."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

LEFT: Final = "MEMBER_LEFT"
EXPIRED: Final = "MEMBER_EXPIRED"

LEAVE_MS: Final = 2_000
"""A client that leaves is dropped within this time of its own word."""
EXPIRY_MS_MIN: Final = 1_000
"""One that stops without leaving is dropped no sooner than this; no session time-out of the recordings is shorter."""
CHANGE_MS: Final = 15_000
"""So long at most takes a group to see that its topics changed."""


class Assigned(NamedTuple):
    """A client's word that it was given partitions."""

    at_ms: int
    group_id: str
    member_id: str
    partitions: tuple[tuple[str, int], ...]


class Gone(NamedTuple):
    """How a client stopped."""

    at_ms: int
    cause: str


@dataclass(slots=True)
class GroupTruth:
    """The part of `truth/events.jsonl` that speaks of groups other than share groups."""

    assigned: list[Assigned] = field(default_factory=list)
    gone: dict[str, list[Gone]] = field(default_factory=dict)
    """By member id."""
    topic_changes: list[tuple[int, str]] = field(default_factory=list)
    """When a topic was made, deleted or got more partitions."""

    def departure(self, member_id: str, at_ms: int) -> str | None:
        """Why a member went at a time; None where the clients' words do not tell."""
        for gone in self.gone.get(member_id, ()):
            if gone.cause == LEFT and abs(at_ms - gone.at_ms) <= LEAVE_MS:
                return LEFT
            if gone.cause == EXPIRED and at_ms >= gone.at_ms + EXPIRY_MS_MIN:
                return EXPIRED
        return None

    def has_topic_change(self, at_ms: int) -> bool:
        """Did any topic change not long before?"""
        return any(at_ms - CHANGE_MS <= changed_ms <= at_ms for changed_ms, _ in self.topic_changes)


def read_group_truth(recording: Path) -> GroupTruth:
    """Read a recording's events."""
    truth = GroupTruth()
    instances: dict[str, str | None] = {}
    of_client: dict[str, str] = {}
    of_instance: dict[tuple[str, str], str] = {}
    with (recording / "truth" / "events.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            match event["ev"]:
                case "assigned":
                    member_id, instance = event["member_id"], event["instance"]
                    instances[member_id], of_client[event["client"]] = instance, member_id
                    if instance is not None:
                        of_instance[event["group"], instance] = member_id
                    truth.assigned.append(
                        Assigned(event["ts_ms"], event["group"], member_id, _partitions(event["partitions"]))
                    )
                case "member_closed":
                    _close(truth, event, instances.get(event["member_id"]))
                case "killed" if event["client"] in of_client:
                    _go(truth, of_client[event["client"]], event["ts_ms"], EXPIRED)
                case "admin_remove_member" if (event["group"], event["instance"]) in of_instance:
                    _go(truth, of_instance[event["group"], event["instance"]], event["ts_ms"], LEFT)
                case "topic_created" | "topic_deleted" | "partitions_increased":
                    truth.topic_changes.append((event["ts_ms"], event["topic"]))
    return truth


def _close(truth: GroupTruth, event: Mapping[str, Any], instance: str | None) -> None:
    """CloseOptions: a static member stays by default, another leaves."""
    stays = event["how"] == "REMAIN_IN_GROUP" or (event["how"] != "LEAVE_GROUP" and instance is not None)
    _go(truth, event["member_id"], event["ts_ms"], EXPIRED if stays else LEFT)


def _go(truth: GroupTruth, member_id: str, at_ms: int, cause: str) -> None:
    truth.gone.setdefault(member_id, []).append(Gone(at_ms, cause))


def _partitions(names: list[str]) -> tuple[tuple[str, int], ...]:
    split = (name.rpartition("-") for name in names)
    return tuple((topic, int(partition)) for topic, _, partition in split)
