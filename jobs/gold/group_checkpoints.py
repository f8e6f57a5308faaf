"""Serialized state that an audit keeps of a log partition of `__consumer_offsets` (see `inference.group_past`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Any, Final, Self

import msgspec
import numpy as np

from coordinator_core.errors import StateUnreadable
from coordinator_core.inference.audit.audit_watermark import AuditWatermark
from coordinator_core.inference.audit.group_past import Gone, GroupedCommits, GroupFacts, MemberCommitTimes
from coordinator_core.inference.commits.last_commit_times import TIMES_MAX
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.life import COMMIT_COLUMNS, GroupCommits
from coordinator_core.inference.facts.rows import ShareGroupDayRow
from coordinator_core.inference.groups.handovers import Handover
from coordinator_core.replay.key_buckets import KeyBucket

OWNER_COLUMNS: Final = ("member", "topic", "partition")
FACT_COUNT: Final = GroupFacts._fields.index("gone")
"""Number of fields of `GroupFacts` before `gone`, its last one."""


@dataclass(frozen=True, slots=True)
class SavedGroups:
    """What the last audit kept."""

    pasts: dict[str, GroupFacts] = field(default_factory=dict)
    days: dict[str, list[ShareGroupDayRow]] = field(default_factory=dict)
    commits: GroupedCommits = field(default_factory=lambda: GroupedCommits.of(()))
    commit_times: MemberCommitTimes = field(default_factory=MemberCommitTimes)
    watermarks: dict[str, bytes] = field(default_factory=dict)
    """Settled pasts of groups, as `packed_watermark` packs them: few of them are unpacked."""
    not_judged: frozenset[str] = frozenset()
    """Groups that could not be judged: nothing is kept of them, and the next audit judges them from their beginning."""

    def begin(self, next_offset: int) -> int:
        """Where the commits begin that are new from a log offset on: the outcome of open transactions is new, too."""
        return int(self.commits.pending.min(initial=next_offset))

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """Merge the states of several tasks; no group is in two of them."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            {group_id: past for part in parts for group_id, past in part.pasts.items()},
            {group_id: days for part in parts for group_id, days in part.days.items()},
            GroupedCommits.of([part.commits.piece for part in parts]),
            MemberCommitTimes.together([part.commit_times for part in parts]),
            {group_id: watermark for part in parts for group_id, watermark in part.watermarks.items()},
            frozenset(chain.from_iterable(part.not_judged for part in parts)),
        )

    def of_bucket(self, bucket: KeyBucket) -> Self:
        """The state of one task's groups."""
        members = {group_id for group_id, _, _ in self.commit_times.members}
        names = sorted({*self.pasts, *self.days, *self.watermarks, *self.not_judged, *self.commits.group_ids, *members})
        own = frozenset(compress(names, bucket.has_groups(names).tolist()))
        return type(self)(
            {group_id: past for group_id, past in self.pasts.items() if group_id in own},
            {group_id: days for group_id, days in self.days.items() if group_id in own},
            self.commits.alone(own),
            self.commit_times.without(members - own),
            {group_id: watermark for group_id, watermark in self.watermarks.items() if group_id in own},
            self.not_judged & own,
        )

    def packed(self) -> bytes:
        kinds: dict[Claim, int] = {}

        def number(leave_reason: Claim) -> int:
            return kinds.setdefault(leave_reason, len(kinds))

        pasts = {
            group_id: (
                past[:FACT_COUNT],
                [
                    (
                        place,
                        gone.member_count,
                        number(gone.why),
                        [(*at, number(why)) for at, why in gone.others.items()],
                    )
                    for place, gone in past.gone.items()
                ],
            )
            for group_id, past in self.pasts.items()
        }
        commits, commit_times = self.commits.commits, self.commit_times
        return msgspec.msgpack.encode(
            {
                "pasts": pasts,
                "departures": [tuple(leave_reason) for leave_reason in kinds],
                "days": {group_id: [tuple(day) for day in days] for group_id, days in self.days.items()},
                "commit_groups": (self.commits.group_ids, _bytes(self.commits.group)),
                "commit_topics": commits.topics,
                "commits": {name: _bytes(getattr(commits, name)) for name in COMMIT_COLUMNS},
                "members": commit_times.members,
                "latest": _bytes(commit_times.latest.reshape(-1)),
                "owned_topics": commit_times.topics,
                "owners": {name: _bytes(getattr(commit_times, name)) for name in OWNER_COLUMNS},
                "watermarks": self.watermarks,
                "not_judged": sorted(self.not_judged),
            }
        )

    @classmethod
    def unpacked(cls, packed: bytes) -> Self:
        """Deserialize the bytes of `packed`. Raises StateUnreadable for any others."""
        try:
            decoded: dict[str, Any] = msgspec.msgpack.decode(packed)
            kinds = [Claim(*leave_reason) for leave_reason in decoded["departures"]]
            types = {name: getattr(GroupCommits(), name).dtype for name in COMMIT_COLUMNS}
            columns = {name: _numbers(decoded["commits"][name]).astype(types[name]) for name in COMMIT_COLUMNS}
            group_ids, group = decoded["commit_groups"]
            commits = GroupCommits(tuple(decoded["commit_topics"]), **columns)
            commit_times = MemberCommitTimes(
                tuple((group_id, member_id, place) for group_id, member_id, place in decoded["members"]),
                _numbers(decoded["latest"]).reshape(-1, TIMES_MAX),
                tuple(decoded["owned_topics"]),
                *(_numbers(decoded["owners"][name]) for name in OWNER_COLUMNS),
            )
            return cls(
                {group_id: _past(facts, gone, kinds) for group_id, (facts, gone) in decoded["pasts"].items()},
                {group_id: [ShareGroupDayRow(*day) for day in found] for group_id, found in decoded["days"].items()},
                GroupedCommits(tuple(group_ids), _numbers(group), commits),
                commit_times,
                decoded["watermarks"],
                frozenset(decoded["not_judged"]),
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError, msgspec.MsgspecError) as error:
            raise StateUnreadable(f"what an audit kept of a log partition cannot be read: {error}") from error


def packed_watermark(watermark: AuditWatermark) -> bytes:
    return msgspec.msgpack.encode(
        watermark._replace(
            group_types=sorted(watermark.group_types),  # type: ignore[arg-type]
            unplanned=sorted(watermark.unplanned),  # type: ignore[arg-type]
        )
    )


def unpacked_watermark(packed: bytes) -> AuditWatermark:
    """Deserialize the bytes of `packed_watermark`. Raises StateUnreadable for any others."""
    try:
        return msgspec.msgpack.decode(packed, type=AuditWatermark)
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise StateUnreadable(f"what an audit kept of a group's settled past cannot be read: {error}") from error


def _past(facts: list[Any], gone: list[Any], kinds: list[Claim]) -> GroupFacts:
    by_end = {
        place: Gone(count, kinds[code], {(member_id, begin): kinds[other] for member_id, begin, other in others})
        for place, count, code, others in gone
    }
    found = GroupFacts._make((*facts, by_end))
    return found._replace(handovers={place: Handover(*one) for place, one in found.handovers.items()})


def _bytes(numbers: Any) -> bytes:
    """Delta encoding: most differences are small, so Parquet compresses them well."""
    values = np.asarray(numbers, np.int64)
    raw: bytes = np.diff(values, prepend=np.int64(0)).astype("<i8").tobytes()
    return raw


def _numbers(raw: bytes) -> Any:
    return np.cumsum(np.frombuffer(raw, "<i8"), dtype=np.int64)
