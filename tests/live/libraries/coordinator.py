"""What the broker's own log says of departures and of what made each rebalance: facts that no coordinator topic has.

Lines of GroupMetadataManager become `truth/coordinator.jsonl`: `{"at", "group", "what": "left" | "expired", "member"}`,
and `{"at", "group", "what": "rebalance", "generation", "reason", "client_reason"}`, with the generation before it.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

TIME: Final = "%Y-%m-%dT%H:%M:%S,%f"
"""Local time, as log4j writes it."""

DEPARTURES: Final = (
    ("left", re.compile(r"\[Group (?P<group>\S+)\] Member (?P<member>\S+) has left group .*LeaveGroup")),
    (
        "left",
        re.compile(r"\[GroupId (?P<group>\S+)\] Member (?P<member>\S+) left the (?:consumer|streams|share) group"),
    ),
    ("expired", re.compile(r"Member (?P<member>\S+) in group (?P<group>\S+) has failed, removing it")),
    (
        "expired",
        re.compile(
            r"\[GroupId (?P<group>\S+)\] Member (?P<member>\S+) fenced from the group because .*(?:expired|within)"
        ),
    ),
)
NOT_BACK: Final = re.compile(
    r"Group (?P<group>\S+) removed dynamic members who haven't joined: \[(?P<members>[^\]]*)\]"
)
"""They did not join again within the rebalance time-out. That is no leave either, and counts as `expired`."""
REBALANCE: Final = re.compile(
    r"Preparing to rebalance group (?P<group>\S+) in state \S+ with old generation (?P<generation>\d+)"
    r" \(reason: (?P<reason>.*)\)"
)
REASONS: Final = (
    ("JOINED", "Adding new member"),
    ("LEFT", "explicit `LeaveGroup`"),
    ("EXPIRED", "on heartbeat expiration"),
    ("LEADER_JOINED_AGAIN", "Leader "),
    ("MEMBER_JOINED_AGAIN", "Updating metadata for member"),
    ("REPLACED", "Replacing existing static member"),
)
CLIENT_REASONS: Final = (
    ("REVOKED", ("need to revoke partitions and re-join", "after revoking what we lost")),
    ("SUBSCRIPTION", ("subscription has changed", "our interests have changed")),
    ("METADATA", ("cached metadata has changed", "partitions were added", "some topics have new partitions")),
    ("NOT_GIVEN", ("not provided",)),
)


def facts_of(broker_log: Path) -> Iterator[dict[str, Any]]:
    """In order of the log."""
    with broker_log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if "GroupMetadataManager" not in line:
                continue
            yield from _facts(line)


def _facts(line: str) -> Iterator[dict[str, Any]]:
    for what, pattern in DEPARTURES:
        if found := pattern.search(line):
            yield {"at": _at(line), "group": found["group"], "what": what, "member": found["member"]}
            return
    if found := NOT_BACK.search(line):
        for member in found["members"].split(", "):
            yield {"at": _at(line), "group": found["group"], "what": "expired", "member": member}
    elif found := REBALANCE.search(line):
        reason, _, client_reason = found["reason"].partition("; client reason: ")
        yield {
            "at": _at(line),
            "group": found["group"],
            "what": "rebalance",
            "generation": int(found["generation"]),
            "reason": next((name for name, text in REASONS if text in reason), "OTHER"),
            "client_reason": next(
                (name for name, texts in CLIENT_REASONS if any(text in client_reason for text in texts)), "OTHER"
            ),
        }


def _at(line: str) -> int:
    return round(datetime.strptime(line.split(" ", 1)[0], TIME).timestamp() * 1000)
