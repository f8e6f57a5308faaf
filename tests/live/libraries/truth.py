"""What was done to the groups of a recording, and what their members' own callbacks said they owned."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

RUNNING: Final = "running"
LEFT: Final = "left"
KILLED: Final = "killed"
EXPIRED: Final = "expired"

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Life:
    """A member's process, from its start to its end. The name is its client id, which a later process may have too."""

    group_id: str
    name: str
    started_at: int
    ended_at: int | None = None
    """When it was asked to leave, or killed."""
    gone_at: int | None = None
    """When it had left and ended, or was killed."""
    end: str = RUNNING


class Owned(NamedTuple):
    """A span of time in which a process had a partition."""

    partition: Partition
    life: Life
    from_ms: int
    to_ms: int | None


class Act(NamedTuple):
    """Something done to a group, in ms since the epoch."""

    at: int
    what: str
    name: str


class LeaveReason(NamedTuple):
    """Why a member is no more, by the broker's own log: it left, or its session expired."""

    at: int
    what: str


class Trigger(NamedTuple):
    """Why the broker began a rebalance after a classic generation (coordinator.py)."""

    at: int
    reason: str
    client_reason: str


@dataclass(frozen=True, slots=True)
class GroupTruth:
    """All that is known of a group from outside of its log."""

    group_id: str
    facts: Mapping[str, Any]
    acts: tuple[Act, ...]
    lives: tuple[Life, ...]
    owned: tuple[Owned, ...]
    departures: Mapping[str, Sequence[LeaveReason]]
    """By member id, in order of time: a member of the consumer protocol comes back with the id that it had."""
    triggers: Mapping[int, Trigger]
    """By the generation before the rebalance."""

    @property
    def session_ms(self) -> int:
        """Of its members."""
        return int(self.facts["session_ms"])

    def life_of(self, client_id: str, at: int) -> Life | None:
        """Whose member with this client id joined at a time: clients may add to the name (a thread, a number)."""
        found = [
            life
            for life in self.lives
            if (client_id == life.name or client_id.startswith(f"{life.name}-")) and life.started_at <= at
        ]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Truth:
    """Of a whole recording."""

    ended_at: int
    """When the logs were copied, in ms since the epoch."""
    groups: Mapping[str, GroupTruth]
    languages: frozenset[str]
    libraries: frozenset[str]


def read_truth(folder: Path) -> Truth:
    """Read `acts.jsonl`, `callbacks.jsonl` and `groups.json`."""
    reported = json.loads((folder / "groups.json").read_text())
    acts = by_group(_lines(folder / "acts.jsonl"))
    callbacks = by_group(_lines(folder / "callbacks.jsonl"))
    said = by_group(_lines(folder / "coordinator.jsonl"))
    groups = {}
    for group_id, facts in reported["groups"].items():
        lives = tuple(_lives(acts.get(group_id, [])))
        begun = [line for line in acts.get(group_id, ()) if line["phase"] != "end"]
        groups[group_id] = GroupTruth(
            group_id,
            facts,
            tuple(Act(line["at"], line["act"], line["member"]) for line in begun)
            + tuple(
                Act(line["at"], "subscribe", line["member"])
                for line in callbacks.get(group_id, ())
                if line["event"] == "subscription"
            ),
            lives,
            tuple(_owned(lives, callbacks.get(group_id, []), reported["ended_at"])),
            _departures(said.get(group_id, ())),
            {
                fact["generation"]: Trigger(fact["at"], fact["reason"], fact["client_reason"])
                for fact in said.get(group_id, ())
                if fact["what"] == "rebalance"
            },
        )
    return Truth(
        reported["ended_at"],
        groups,
        frozenset(facts["language"] for facts in reported["groups"].values()),
        frozenset(facts["library"] for facts in reported["groups"].values()),
    )


def by_group(lines: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Lines in order of time, by group."""
    ordered = sorted(lines, key=lambda line: (line["group"], line["at"]))
    return {group_id: list(of_group) for group_id, of_group in groupby(ordered, key=lambda line: line["group"])}


def _departures(facts: Iterable[Mapping[str, Any]]) -> dict[str, list[LeaveReason]]:
    departures: dict[str, list[LeaveReason]] = {}
    for fact in facts:
        if fact["what"] in {LEFT, EXPIRED}:
            departures.setdefault(fact["member"], []).append(LeaveReason(fact["at"], fact["what"]))
    return departures


def _lines(file: Path) -> Iterator[Mapping[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _lives(acts: Iterable[Mapping[str, Any]]) -> Iterator[Life]:
    """In order of their starts."""
    lives: list[Life] = []
    newest: dict[str, int] = {}
    for line in acts:
        name, at = line["member"], line["at"]
        if line["act"] == "start":
            newest[name] = len(lives)
            lives.append(Life(line["group"], name, at))
        elif line["act"] in {"leave", "kill"}:
            place = newest[name]
            was = lives[place]
            end = LEFT if line["act"] == "leave" and line["phase"] in {"begin", "end"} else KILLED
            began = at if was.ended_at is None else was.ended_at
            lives[place] = Life(was.group_id, was.name, was.started_at, began, at, end)
    yield from lives


def _owned(lives: tuple[Life, ...], callbacks: Iterable[Mapping[str, Any]], ended_at: int) -> Iterator[Owned]:
    """What each process had, by its callbacks; a killed process has what it had until then."""
    for life in lives:
        open_since: dict[Partition, int] = {}
        end = life.gone_at if life.gone_at is not None else ended_at
        for line in callbacks:
            if line["member"] != life.name or not life.started_at <= line["at"] <= end:
                continue
            at, partitions = line["at"], {(topic, number) for topic, number in line["partitions"]}
            match line["event"]:
                case "assigned":
                    gone, came = set[Partition](), partitions
                case "revoked" | "lost":
                    gone, came = partitions, set[Partition]()
                case "owns":
                    gone, came = set(open_since) - partitions, partitions
                case "closed":
                    gone, came = set(open_since), set[Partition]()
                case "subscription":
                    continue
                case event:
                    raise ValueError(f"no such callback: {event}")
            for partition in sorted(gone & open_since.keys()):
                yield Owned(partition, life, open_since.pop(partition), at)
            for partition in sorted(came - open_since.keys()):
                open_since[partition] = at
        for partition, since in sorted(open_since.items()):
            yield Owned(partition, life, since, life.gone_at)
