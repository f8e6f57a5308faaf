"""What may have happened to members unseen, because the recorded settings bore it, and would matter under the changed
ones: plays try it both ways.

* A consumer commits when it polls, and a member that is paused does neither that nor send heartbeats. So the time
  between two commits bounds how long it was silent.
* A static member of a consumer group that died and came back within its session was refused, and that is in no log.
  Under another protocol, or as a dynamic member, it would have joined.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Final

from schemas.group_types import GroupType
from simulator.whatif.lifetimes import POLL_MS, End, Lifetime
from simulator.whatif.settings import Changes
from simulator.whatif.timeline import PAUSED, REFUSED, SLOW, Timeline, Unseen

COMMITS_MIN: Final = 4
"""Fewer do not show how often a member commits."""


def with_unseen(timeline: Timeline, changes: Changes) -> Timeline:
    """The timeline with all that may have been unseen."""
    found: list[Unseen] = []
    is_blind = False
    is_let_in = timeline.group_type == GroupType.CONSUMER and (
        changes.is_static is False or changes.protocol == "classic"
    )
    for life in timeline.lifetimes:
        from_ms, to_ms = _span(timeline, life)
        times = [time_ms for time_ms in life.commits_ms if from_ms <= time_ms < to_ms]
        gaps = sorted(later - earlier for earlier, later in pairwise(times))
        for what, timeout_ms, recorded_ms in _shorter(timeline, life, changes):
            if to_ms - from_ms > timeout_ms and (len(times) < COMMITS_MIN or gaps[len(gaps) // 2] >= timeout_ms):
                is_blind = True
                continue
            longest_ms = recorded_ms - timeline.heartbeat_interval_ms - POLL_MS
            found += [
                Unseen(what, life.number, max(earlier, later - longest_ms), later)
                for earlier, later in pairwise([from_ms, *times, to_ms])
                if later - earlier > timeout_ms
            ]
        ended_ms = life.member.valid_to
        if ended_ms is not None and life.end is End.EXPIRED and is_let_in and life.member.instance_id is not None:
            since_ms = ended_ms - life.session_timeout_ms
            found.append(Unseen(REFUSED, life.number, max(since_ms, life.member.valid_from), ended_ms))
    return replace(timeline, unseen=tuple(found), is_blind=is_blind)


def _shorter(timeline: Timeline, life: Lifetime, changes: Changes) -> Iterator[tuple[str, int, int]]:
    """(what would matter, changed timeout, recorded one) where the changed one is shorter."""
    protocol = timeline.protocol_under(changes)
    session_ms = changes.session_timeout_ms if protocol == "classic" else changes.consumer_session_timeout_ms
    if session_ms is not None and session_ms < life.session_timeout_ms:
        yield PAUSED, session_ms, life.session_timeout_ms
    poll_ms = changes.max_poll_interval_ms
    if poll_ms is not None and poll_ms < life.poll_timeout_ms:
        yield SLOW, poll_ms, life.poll_timeout_ms


def _span(timeline: Timeline, life: Lifetime) -> tuple[int, int]:
    """From when to when a member was there and its silence caused nothing."""
    member = life.member
    from_ms = max(member.valid_from, timeline.from_ms)
    to_ms = timeline.to_ms if member.valid_to is None else min(member.valid_to, timeline.to_ms)
    if life.end not in {End.LEFT, End.STILL} and life.commits_ms:
        to_ms = min(to_ms, life.commits_ms[-1])  # then began the silence that ended it
    return from_ms, max(from_ms, to_ms)
