"""What an audit keeps of a share log, so that the next one judges only new records.

A result for a record depends on earlier records, and for a while on later ones. So an audit continues from a log
offset, `settled_to`: results for earlier records stay; later records are judged again. Of the earlier records the next
audit needs

* for each share partition the state before, where that state began, and the newest load by another leader;
* the AVAILABLE ranges, with the records that made them so, and whether requests had returned them;
* for each group the highest delivery count at which it returned a range, what happened to such ranges, and the lowest
  count at which it archived a range that no limit explains, and since when members return ranges alone (`GroupPast`);
* how many offsets were acknowledged, redelivered and archived, by share partition and day.

A log that is too large to be judged at once is judged in slices in the same way, one after another. What the whole log
shows about the delivery limits of its groups is computed first (`shown_by`), so that it is known in each slice.

Earlier results also depend on data outside of the share log: configs, and the members at each time.
`SharePast.fingerprint` shows whether these are unchanged. Where they changed, or where a group's past now reads
differently, `PastDiffers` is raised and the whole log has to be judged again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import I64
from coordinator_core.errors import PastDiffers
from coordinator_core.inference.facts.columns import taken
from coordinator_core.inference.facts.configs import DELIVERY_COUNT_LIMIT, Configs
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.shares.evidence import (
    Evidence,
    given_up,
    group_pasts,
    last_persisted_with,
    reloads,
    trace_available,
)
from coordinator_core.inference.shares.share_log import (
    AVAILABLE,
    NO_COUNT,
    NO_PAST,
    NO_PLACE,
    GroupPast,
    ShareLog,
    ShareMembers,
    SharePast,
    ShareStates,
    ShareTransitions,
)


class Known(NamedTuple):
    """The data from other logs on which results for the settled part depend."""

    group_ids: tuple[str, ...]
    topics: tuple[str, ...]
    until_ms: int
    """The latest time that matters; -1: nothing is settled."""
    fingerprint: bytes

    @classmethod
    def of(
        cls, group_ids: Iterable[str], topics: Iterable[str], until_ms: int, configs: Configs, members: ShareMembers
    ) -> "Known":
        """The current data."""
        groups, names = tuple(sorted(set(group_ids))), tuple(sorted(set(topics)))
        digest = blake2b(repr(configs.of_share_groups(groups, names, until_ms)).encode(), digest_size=16)
        for group_id in groups:
            stays = members.get(group_id)
            if stays is None:
                digest.update(b"||")  # like a group whose members came later
                continue
            for times in (stays.joined_ms, stays.left_ms):
                digest.update(np.sort(times[times <= until_ms]).astype("<i8").tobytes() + b"|")
        return cls(groups, names, until_ms, digest.digest())

    def require_same(self, configs: Configs, members: ShareMembers) -> None:
        """Raises PastDiffers if the data changed."""
        if self.until_ms >= 0 and self.of(self.group_ids, self.topics, self.until_ms, configs, members) != self:
            raise PastDiffers("configs or members of share groups were learned of late")


@dataclass(frozen=True, slots=True)
class Kept:
    """What the next audit needs of a log."""

    settled_to: int
    """Log offset: results for earlier records stay."""
    observed_ms: int
    groups: Mapping[str, GroupPast]
    known: Known
    states: ShareStates
    state_rows: I64
    """The rows of the log's states that these are."""
    transitions: ShareTransitions


def shown_by(logs: Iterable[ShareLog], past: SharePast = NO_PAST) -> Mapping[str, GroupPast]:
    """What consecutive slices of a log show about each group's delivery limit by the end of the last one. `past`: what
    lies before the first. Rows may be in log order."""
    groups = dict(past.groups)
    for log in logs:
        so_far = replace(log, past=replace(past, groups=groups))
        groups |= zip(log.keys.group_ids, group_pasts(so_far), strict=True)
    return groups


def require_same_groups(
    log: ShareLog, pasts: Sequence[GroupPast], settings: InferenceSettings, configs: Configs
) -> None:
    """Raises PastDiffers if more is known about a group's delivery limit than when its past was judged, and that
    affects its past. `pasts`: the `group_pasts` of the log."""
    if not log.past.groups:
        return
    default = settings.delivery_count_limit
    for group_id, past in zip(log.keys.group_ids, pasts, strict=True):
        before = log.past.groups.get(group_id)
        if before is None:
            continue
        # where a config is recorded, but is unknown for some time, the assumed value depends on the recorded ones
        is_same = before[:2] == past[:2] or not configs.has(DELIVERY_COUNT_LIMIT, group_id)
        if not is_same or before.assumed_limit(default) != past.assumed_limit(default):
            raise PastDiffers("a group shows another delivery limit than before")
        if before.lowest_assumed <= past.highest:
            raise PastDiffers("a group handed back as often as it gave up before")


def settled_to(log: ShareLog, evidence: Evidence, next_offset: int, late_ms: int) -> int:
    """The log offset up to which results stay, whatever comes after `next_offset`. A result is not settled before
    `late_ms` have passed, since other logs may be behind this one."""
    is_open = evidence.until_ms + late_ms > int(log.states.at_ms.max(initial=log.past.observed_ms))
    is_open &= log.transitions.released < 0
    return max(int(log.transitions.log_offset[is_open].min(initial=next_offset)), log.past.from_log_offset)


def kept_of(log: ShareLog, evidence: Evidence, place: int, configs: Configs, members: ShareMembers) -> Kept:
    """What to keep of a log that is settled up to `place`, and was judged from the beginning or from `log.past` on."""
    changes, states = log.transitions, log.states
    before = np.flatnonzero(states.log_offset < place)
    changes_before = np.flatnonzero(changes.log_offset < place)
    pieces = _available(log, evidence, changes_before)
    rows = _needed_states(log, before, log.state_of_transition[pieces[:, 2]])
    is_judged = changes.released[changes_before] < 0
    until_ms = int(evidence.until_ms[changes_before[is_judged]].max(initial=log.past.until_ms))
    keys = np.unique(states.key[before])
    group_ids = [log.keys.group_ids[code] for code in np.unique(log.keys.group[keys]).tolist()]
    topics = [log.keys.topics[key] or "" for key in keys.tolist()]
    pasts = dict(zip(log.keys.group_ids, group_pasts(log, place), strict=True))
    lowest = dict(zip(log.keys.group_ids, _lowest_assumed(log, evidence, changes_before), strict=True))
    alone = dict(zip(log.keys.group_ids, _alone_since(log, evidence, pasts.values(), place), strict=True))
    kept = taken(changes, pieces[:, 2])
    return Kept(
        settled_to=place,
        observed_ms=int(states.at_ms.max(initial=log.past.observed_ms)),
        groups={
            group_id: pasts[group_id]._replace(lowest_assumed=int(lowest[group_id]), alone_since=int(alone[group_id]))
            for group_id in group_ids
        },
        known=Known.of(group_ids, topics, until_ms, configs, members),
        states=replace(taken(states, rows), last_persisted=last_persisted_with(log)[rows]),
        state_rows=rows,
        transitions=replace(
            kept,
            first_offset=pieces[:, 0],
            last_offset=pieces[:, 1],
            released=evidence.is_released[pieces[:, 2]].astype(np.int8),
        ),
    )


def _alone_since(log: ShareLog, evidence: Evidence, pasts: Iterable[GroupPast], place: int) -> I64:
    """`GroupPast.alone_since` of each group, as far as it is before a place. `pasts`: those of the groups."""
    since = np.array([past.alone_since for past in pasts], np.int64)
    found = np.where(evidence.alone_since < place, evidence.alone_since, NO_PLACE)
    np.minimum.at(since, log.keys.group[log.states.key[log.state_of_transition]], found)
    return since


def _lowest_assumed(log: ShareLog, evidence: Evidence, rows: I64) -> I64:
    """`GroupPast.lowest_assumed` of each group, including some of the transitions."""
    before = (log.past.groups.get(group_id) for group_id in log.keys.group_ids)
    lowest = np.array([NO_COUNT if past is None else past.lowest_assumed for past in before], np.int64)
    changes = log.transitions
    is_assumed = given_up(changes) & evidence.is_below_limit & ~evidence.is_limit_shown & (changes.released < 0)
    rows = rows[is_assumed[rows]]
    group = log.keys.group[log.states.key[log.state_of_transition[rows]]]
    np.minimum.at(lowest, group, changes.to_delivery_count[rows])
    return lowest


def _available(log: ShareLog, evidence: Evidence, rows: I64) -> I64:
    """The ranges that are AVAILABLE after some of the transitions: first offset, last offset, row of the transition."""
    changes = log.transitions
    pieces = trace_available(
        log.states.key[log.state_of_transition[rows]],
        changes.first_offset[rows],
        changes.last_offset[rows],
        changes.to_state[rows] == AVAILABLE,
        evidence.is_released[rows],
        np.full(len(rows), -1, np.int64),
        np.zeros(len(rows), np.bool_),
    )
    pieces[:, 2] = rows[pieces[:, 2]]
    return pieces


def _needed_states(log: ShareLog, before: I64, makers: I64) -> I64:
    """For each share partition, the newest of the states in `before`, its last snapshot, the first one with a start
    offset, the one where its state began and its last load by another leader, these two with the state before them;
    also the states in `makers`."""
    if not len(before):
        return before
    states = log.states
    is_newest = np.append(states.key[before][1:] != states.key[before][:-1], True)
    newest = before[is_newest]
    began, started = states.began()[newest], states.started()[newest]
    listed = states.last_listed()[newest]
    loaded = reloads(log)[newest]
    places = np.concatenate((began, loaded[loaded >= 0]))
    earlier = places[places > 0] - 1
    earlier = earlier[states.key[earlier] == states.key[earlier + 1]]
    is_needed = np.zeros(len(states), np.bool_)
    for rows in (newest, listed, places, earlier, makers, started[started >= began]):
        is_needed[rows] = True
    return np.flatnonzero(is_needed)
