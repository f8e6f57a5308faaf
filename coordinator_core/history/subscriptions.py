"""Finds groups whose members have no topic in common: usually two applications under one group.id.

Members of one application subscribe to the same or overlapping topics. So members are joined into a set if they share a
topic, directly or through others. Where several sets remain, whose topics do not overlap, the group is *apart*. Each
set has its own partitions, but they share what belongs to the group: each rebalance of one set stops the others, and a
set that falls behind, or commits under the other's topics, is hard to find.

A member whose topics are unknown (a pattern, unreadable bytes) may share a topic with any other; with such a member a
group is not apart. A member without topics belongs to no set. For groups of other protocols (Connect, Streams) topics
have no such meaning.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from coordinator_core.history import views
from coordinator_core.history.operations import ReplayedOperation
from coordinator_core.history.rows import SUBSCRIPTIONS_APART, SUBSCRIPTIONS_TOGETHER
from coordinator_core.history.views import Member, Topics
from coordinator_core.limits import APPLICATION_NAMES_MAX
from coordinator_core.replay.dispatch import Group

Parts = tuple[frozenset[str], ...]
"""The topics of each set of members, ordered by the first topic; empty if there are fewer than two sets."""
NOT_APART: Final[Parts] = ()
NO_MEMBERS: Final[Mapping[str, Member]] = {}
UNKNOWN: Final = frozenset({""})
"""Topics that are unknown: no topic has this name."""


class _Counted(NamedTuple):
    members: Counter[Topics]
    """How many members have each set of topics."""
    parts: Parts


class Subscriptions:
    """Counts the subscriptions of each group's members, so that the cost of an update depends on what changed."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def compare(self, step: ReplayedOperation) -> None:
        """Record an event where a group's members come apart, or are connected again."""
        before, after = step.before, step.after
        had, has = _members(before), _members(after)
        if had is has:
            return
        group_id = step.operation.group_id
        counted = self._counted.pop(group_id, None)
        if len(had) < 2 and len(has) < 2:
            return
        if counted is None:
            counted = _counted(before)
        was = counted.parts
        counted = _advanced(counted, step) if _goes_on(step) else _counted(after)
        if len(has) > 1:
            self._counted[group_id] = counted
        now = counted.parts
        if len(now) > len(was):
            _add_application_event(step, now)
        elif was and not now:
            step.add_event(SUBSCRIPTIONS_TOGETHER, step.vanished_at if after is None else step.generation_at)


def _members(group: Group | None) -> Mapping[str, Member]:
    return NO_MEMBERS if group is None else group.members


def _goes_on(step: ReplayedOperation) -> bool:
    """Whether it is the same group, in which only members named in the operation's keys may have changed."""
    return (
        step.before is not None and type(step.before) is type(step.after) and not step.vanished and bool(step.touched)
    )


def _counted(group: Group | None) -> _Counted:
    members = Counter(_topics(group, member) for member in _members(group).values()) if group is not None else Counter()
    return _Counted(members, _parts(members))


def _advanced(counted: _Counted, step: ReplayedOperation) -> _Counted:
    had, has = _members(step.before), _members(step.after)
    assert step.before is not None and step.after is not None, "the group goes on"
    members, parts = counted
    is_other = False
    for member_id in step.touched:
        old, new = had.get(member_id), has.get(member_id)
        if old is new:
            continue
        if old is not None:
            topics = _topics(step.before, old)
            members[topics] -= 1
            if not members[topics]:
                del members[topics]
                is_other = True
        if new is not None:
            topics = _topics(step.after, new)
            is_other |= topics not in members
            members[topics] += 1
    return _Counted(members, _parts(members) if is_other else parts)


def _topics(group: Group, member: Member) -> Topics:
    topics = views.topics_of(group, member)
    return UNKNOWN if topics is None else topics


def _parts(subscriptions: Iterable[Topics]) -> Parts:
    """The topics of each set of members that shares none with the other sets."""
    found: list[frozenset[str]] = []
    for topics in subscriptions:
        if topics == UNKNOWN:
            return NOT_APART
        if not topics:
            continue
        apart = [part for part in found if part.isdisjoint(topics)]
        found = [*apart, topics.union(*(part for part in found if not part.isdisjoint(topics)))]
    return tuple(sorted(found, key=min)) if len(found) > 1 else NOT_APART


def _add_application_event(step: ReplayedOperation, parts: Parts) -> None:
    """Record the topics and clients of each set, and the record by which the group came apart."""
    group = step.after
    assert group is not None, "nobody is apart in a group that is gone"
    clients: list[set[str]] = [set() for _ in parts]
    counts = [0] * len(parts)
    newest: str | None = None
    had = _members(step.before)
    members: Mapping[str, Member] = group.members
    for member_id in sorted(members):
        member = members[member_id]
        topics = _topics(group, member)
        for index, part in enumerate(parts):
            if topics and topics <= part:
                clients[index].add(views.member_fields(group, member).client_id)
                counts[index] += 1
                if newest is None and had.get(member_id) != member:
                    newest = member_id
    applications = [
        {
            "topics": sorted(part)[:APPLICATION_NAMES_MAX],
            "topic_count": len(part),
            "clients": sorted(names)[:APPLICATION_NAMES_MAX],
            "client_count": len(names),
            "member_count": count,
        }
        for part, names, count in zip(parts, clients, counts, strict=True)
    ]
    offset = step.generation_at if newest is None else step.member_at.get(newest, step.generation_at)
    step.add_event(SUBSCRIPTIONS_APART, offset, member_id=newest, details={"applications": json.dumps(applications)})
