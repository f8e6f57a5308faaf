"""The audit of `__consumer_offsets`, one log partition at a time: owners, rebalances, commit anomalies, lag, days.

Of a log partition that was audited before, it reads the new commits. It reads the other tables only for groups that did
more than commit, or whose new commits matter for more than counts. `inference.group_past` describes what is kept for
that.
"""

from collections import ChainMap, Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import chain, compress, takewhile
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.log.chunk import BoolArray
from coordinator_core.inference.audit.audit_watermark import AuditWatermark
from coordinator_core.inference.audit.commits_only import commit_counts, day_of_commits_only, is_noted
from coordinator_core.inference.audit.days import NO_COUNTS, NO_DAY, DayCounts, recreated_days
from coordinator_core.inference.audit.group_past import (
    CommitTimesBuilder,
    GroupBefore,
    GroupedCommits,
    GroupFacts,
    MemberCommitTimes,
    Piece,
)
from coordinator_core.inference.audit.groups import GroupGold, Judged, judge_group
from coordinator_core.inference.audit.log_anomalies import LogAnomalyRow, group_anomalies, not_judged
from coordinator_core.inference.commits.deletions import CLOCKS_MS, NOTHING_REMOVED, Removed
from coordinator_core.inference.facts.calendar import DAY_MS
from coordinator_core.inference.facts.configs import NO_CONFIGS, Configs
from coordinator_core.inference.facts.life import GroupLife
from coordinator_core.inference.facts.log_facts import LogFacts
from coordinator_core.inference.facts.rows import GroupDayRow, ShareGroupDayRow
from coordinator_core.inference.groups.owners import topics_read_together
from jobs.gold.audit_lag import Lags
from jobs.gold.clock_steps import clock_steps, steps_before
from jobs.gold.former_rows import Outdated, day_of
from jobs.gold.group_checkpoints import SavedGroups, packed_watermark, unpacked_watermark
from jobs.gold.group_tables import ADDED_UP, EVERY_PLACE, GROUP_TABLES, NO_PLACE, equal_until
from jobs.gold.isolation import read_or
from jobs.gold.log_anomalies import write_log_anomalies
from jobs.gold.markers import with_own_markers
from jobs.gold.share_reader import configs, removed_topics
from jobs.gold.task import AuditParts, AuditWork
from jobs.gold.topic_ids import TopicIds
from jobs.silver.bundles import GROUP_WEIGHTS, bundles, bundles_with, group_bundles, group_ids
from jobs.silver.checkpoints import changed_versions
from jobs.silver.commits import new_commits
from schemas.tables.declare import Table
from schemas.tables.gold import GROUP_SUMMARY, LOG_ANOMALIES
from schemas.tables.silver import OFFSET_COMMITS

BUFFERED_ROWS_MAX: Final = 100_000
"""Gold rows buffered before they are written."""
WAITING_GROUPS_MAX: Final = 1_000
"""The kept commits of this many groups are concatenated at once: columns of a few commits take more memory than the
commits."""
NEW_COMMIT_WEIGHT: Final = 2
"""A new commit takes as much memory as this many commits that are read by group."""


def group_audit(work: AuditWork, parts: AuditParts) -> Callable[[int], None]:
    """What audits the groups of a log partition: all groups, or those with new records that affect more than counts."""
    known, removed = _inputs(work, parts)
    lags = Lags(work, parts)

    def audit(log_partition: int) -> None:
        packed = work.all_saved(log_partition)
        saved = None if packed is None else SavedGroups.together([SavedGroups.unpacked(state) for state in packed])
        if saved is not None and work.bucket is not None:
            saved = saved.of_bucket(work.bucket)
        place = 0 if saved is None else work.next_offsets[log_partition]
        log, only = _with_clock_steps(work, parts, log_partition, place), None
        if saved is None:
            own, only = _own_groups(work, log_partition)
            if log_partition in work.not_replayed:
                only = work.judged_of(log_partition, group_ids(own.files, log_partition) if only is None else only)
            left = audit_whole_log(log_partition, own, parts, known, removed, log, only)
        elif log_partition in work.resting and not (saved.not_judged or late_groups(saved, work)):
            parts.remove(LOG_ANOMALIES, Outdated(work.topic, log_partition))
            left = saved
        else:
            left = _NewAudit(work, parts, known, removed, log_partition, saved, log).run()
        find_lags = partial(lags.find, log_partition, log, saved, only)
        read_or(None, f"lag of the commits in {work.topic}-{log_partition}", find_lags, parts.done.lacks)
        parts.done.days.extend(chain.from_iterable(left.days.values()))
        parts.keep(log_partition, left.packed())

    return audit


def _inputs(work: AuditWork, parts: AuditParts) -> tuple[Configs, Removed]:
    """Inputs that concern the whole cluster, as far as they can be read."""
    files, lacks = work.files, parts.done.lacks
    return (
        read_or(NO_CONFIGS, "configs of groups, topics and brokers", partial(configs, files), lacks),
        read_or(NOTHING_REMOVED, "topics that were removed", partial(removed_topics, files), lacks),
    )


def _with_clock_steps(work: AuditWork, parts: AuditParts, log_partition: int, from_log_offset: int) -> LogFacts:
    """What is known of a log partition, with all places where its timestamps go back. Those at or after a log offset
    become rows."""
    log = work.log(log_partition)
    if not work.finds_clock_steps:
        return log
    steps = clock_steps(work, parts, log_partition, from_log_offset)
    if work.is_first:
        write_log_anomalies(steps, work.topic, parts)
    places = [step.log_offset for step in steps]
    if from_log_offset:
        places = steps_before(parts, log_partition, work.topic, from_log_offset) + places
    return replace(log, clock_steps=tuple(places))


def _own_groups(work: AuditWork, log_partition: int) -> tuple[AuditWork, Set[str] | None]:
    """The work with only those files of silver that contain groups of this task, and these groups; None: all groups."""
    if work.bucket is None:
        return work, None
    files, own = work.files.of_bucket(GROUP_WEIGHTS, log_partition, work.bucket)
    return replace(work, files=files), own


def late_groups(saved: SavedGroups, work: AuditWork) -> set[str]:
    """Groups whose rows change without new records: those that lost offsets because a topic was removed, where the
    metadata log shows the removal only now; and all groups with records in several log partitions, if another one has.
    """
    since_ms = work.removed_since_ms - CLOCKS_MS
    late = {group_id for group_id, past in saved.pasts.items() if past.tombstone_ms >= since_ms}
    return late | (saved.pasts.keys() & work.places[work.topic].keys() if work.has_moved_groups else set())


def audit_whole_log(
    log_partition: int,
    work: AuditWork,
    parts: AuditParts,
    known: Configs,
    removed: Removed,
    log: LogFacts,
    only: Set[str] | None = None,
) -> SavedGroups:
    """Audit the groups of a log partition from their beginning; `only`: just these groups."""
    parts.remove_all(log_partition, *GROUP_TABLES, LOG_ANOMALIES)
    made, kept = _Made(work, parts, log_partition, log), _KeptBuilder()
    for bundle in group_bundles(work.files, log_partition, only):
        for life in bundle.lives():
            if (judged := made.judge(life, known, removed)) is not None:
                kept.add(judged)
            del life, judged  # before more is read: a group may have many commits
        del bundle
    return made.left(kept.built(), MemberCommitTimes(), SavedGroups())


class Former(NamedTuple):
    """What the last audit made of a group that is judged again."""

    days: Mapping[int, GroupDayRow]
    """Rows of its days, as far as they are not settled."""
    settled_until: int = NO_DAY
    """The last day that is settled."""
    row_sums: Mapping[str, Mapping[int, int]] | None = None
    """`GroupFacts.row_sums`; None: rows that are judged again include settled ones."""


class _Made:
    """Collects what an audit makes of the groups of one log partition: gold rows, written in portions, and the kept
    state."""

    def __init__(self, work: AuditWork, parts: AuditParts, log_partition: int, log: LogFacts) -> None:
        self._work = work
        self._parts = parts
        self._log_partition = log_partition
        self._gold = GroupGold()
        self.pasts: dict[str, GroupFacts] = {}
        self._days: dict[str, list[ShareGroupDayRow]] = {}
        self._watermarks: dict[str, AuditWatermark] = {}
        self._commit_times = CommitTimesBuilder()
        self._not_judged: set[str] = set()
        self.stay_until: defaultdict[Table, dict[str, int]] = defaultdict(dict)
        """The position in each table up to which the last audit's rows of a group stay; not there: none stay."""
        self._log = log
        self._topic_ids = TopicIds(work.files)
        self.recreated: Counter[tuple[str, int]] = Counter()
        """`recreated_days`, as far as no row that is written here counts them."""

    def judge(self, life: GroupLife, known: Configs, removed: Removed, former: Former | None = None) -> Judged | None:
        """Judge a group from its beginning and add the results.

        None: it cannot be judged. Then gold.log_anomalies gets a row, and all other groups are audited.
        """
        try:
            judged = judge_group(self.of_log(life), self._work.inference, known, None, removed)
            self.add(judged, former=former)
        except MemoryError:
            raise
        except Exception as error:
            self._not_judged.add(life.group_id)
            write_log_anomalies([_not_judged(life, error)], self._work.topic, self._parts)
            return None
        return judged

    def of_log(self, life: GroupLife) -> GroupLife:
        """The group with facts about its log partition."""
        work = self._work
        return life._replace(
            log=self._log.of(life.group_id), topic_growth=work.topic_growth, partition_counts=work.partition_counts
        )

    def add(
        self,
        judged: Judged,
        from_log_offset: int = 0,
        share_days: Iterable[ShareGroupDayRow] = (),
        former: Former | None = None,
    ) -> None:
        """Add the results of one group.

        Broken rules before `from_log_offset` are left out. `share_days`: settled days of a share group. `former`: what
        the last audit made of it; what is equal of that stays.
        """
        group_id, gold = judged.life.group_id, judged.gold
        broken = group_anomalies(judged.life, from_log_offset)
        settled = NO_DAY if judged.watermark is None else judged.watermark.day
        before = None if former is None else former.row_sums
        # a row that ended on a settled day stays, even if it is made again
        sums = {
            table: entry.sums(gold, settled if former is None else former.settled_until)
            for table, entry in GROUP_TABLES.items()
            if entry.goes_by_end
        }
        later = {table.name: {day: it for day, it in of.items() if day > settled} for table, of in sums.items()}
        self.pasts[group_id] = judged.past._replace(row_sums=later)
        self._parts.done.read_together |= topics_read_together(judged.life)
        if judged.watermark is not None:
            self._watermarks[group_id] = judged.watermark
        days = [*share_days, *gold.share_days]
        if days:
            self._days[group_id] = days
        self._commit_times.add(judged.life, gold.owners, judged.commit_times)
        if before is not None:
            for table, now in sums.items():
                until = self.stay_until[table][group_id] = equal_until(before.get(table.name, {}), now)
                GROUP_TABLES[table].leave_out(gold, until)
        if former is not None:
            self.stay_until[GROUP_SUMMARY][group_id] = _leave_equal_days(gold.days, former.days, former.settled_until)
        self._gold.extend(gold)
        write_log_anomalies(broken, self._work.topic, self._parts)
        if len(self._gold) > BUFFERED_ROWS_MAX:
            self._write()

    def left(self, commits: GroupedCommits, commit_times: MemberCommitTimes, others: SavedGroups) -> SavedGroups:
        """The state for the next audit, after all groups are added.

        `others`: state of groups that were not audited; `commit_times`: of their members.
        """
        self._write()
        rebuilt = self.pasts.keys() | self._not_judged
        days = {group_id: found for group_id, found in others.days.items() if group_id not in rebuilt}
        watermarks = {group_id: found for group_id, found in others.watermarks.items() if group_id not in rebuilt}
        pasts = {group_id: found for group_id, found in others.pasts.items() if group_id not in self._not_judged}
        watermarks |= {group_id: packed_watermark(found) for group_id, found in self._watermarks.items()}
        return SavedGroups(
            pasts | self.pasts,
            days | self._days,
            commits,
            self._commit_times.built(commit_times),
            watermarks,
            frozenset(self._not_judged),
        )

    def _write(self) -> None:
        """Write the rows, except for days of share groups: the other coordinator topic has the rest of those."""
        work, at = self._work, self._log_partition
        anomalies = with_own_markers(self._gold.anomalies, self._log.holes, work.batch_files.get(at, ()))
        self._gold.anomalies = list(self._topic_ids.with_causes(anomalies, at))
        self.recreated += recreated_days(self._gold.anomalies)
        for index, row in enumerate(self._gold.days if self.recreated else ()):
            count = self.recreated.pop((row.group_id, row.day), 0)
            self._gold.days[index] = row._replace(went_back_count=row.went_back_count - count)
        for table, entry in GROUP_TABLES.items():
            if entry.rows is not None:
                self._parts.write_rows(table, entry.rows(self._gold), self._log_partition)
        self._gold = GroupGold()


def _not_judged(life: GroupLife, error: Exception) -> LogAnomalyRow:
    """The row for a group that could not be judged, at the group's highest log offset."""
    places = [row.from_log_offset for row in life.generations]
    places += [event.log_offset for event in life.events[-1:]]
    places += life.commits.log_offset[-1:].tolist()
    group_type = life.generations[-1].group_type if life.generations else None
    return not_judged(error, life.group_id, group_type, life.log_partition, max(places, default=0))


class _KeptBuilder:
    """Collects the commits that are kept for the next audit."""

    def __init__(self) -> None:
        self._waiting: list[Piece] = []
        self._kept: list[Piece] = []

    def add(self, judged: Judged) -> None:
        commits = judged.life.commits.taken(judged.kept)
        if len(commits):
            self._waiting.append((commits, np.zeros(len(commits), np.int64), (judged.life.group_id,)))
        if len(self._waiting) >= WAITING_GROUPS_MAX:
            self._put_together()

    def built(self) -> GroupedCommits:
        """The commits of all groups added."""
        self._put_together()
        return GroupedCommits.of(self._kept)

    def _put_together(self) -> None:
        self._kept.append(GroupedCommits.of(self._waiting).piece)
        self._waiting = []


class _NewAudit:
    """Audits what is new in one log partition, in portions of groups that fit into memory."""

    def __init__(
        self,
        work: AuditWork,
        parts: AuditParts,
        known: Configs,
        removed: Removed,
        log_partition: int,
        saved: SavedGroups,
        log: LogFacts,
    ) -> None:
        self._work = work
        self._parts = parts
        self._known = known
        self._removed = removed
        self._log_partition = log_partition
        self._saved = saved
        self._late = late_groups(saved, work)
        self._place = work.next_offsets[log_partition]
        self._begin = saved.begin(self._place)
        self._made = _Made(work, parts, log_partition, log)
        self._commit_times = saved.commit_times
        self._commit_times_before = saved.commit_times.by_group()
        self._days_before = parts.former_days()
        self._noted: set[str] = set()
        """Groups with new records other than commits that leave their state unchanged."""
        self._whole: set[str] = set()
        """The `_noted` groups that are audited from their beginning."""
        self._counts: dict[tuple[str, int], DayCounts] = {}
        """Counts to add to existing days, by group and day: to settled days of these groups, and to days of groups
        that only committed."""
        self._quiet_days: dict[tuple[str, int], GroupDayRow] = {}
        """New days of groups that only committed, where gold has no row of that day, by group and day."""

    def run(self) -> SavedGroups:
        """Write the gold rows of the groups as of now; rows of the last audit that remain true stay."""
        work, saved, log_partition, place = self._work, self._saved, self._log_partition, self._place
        for group_id in saved.not_judged:
            self._judge_whole(group_id)
        versions = changed_versions(work.group_files.get(log_partition, ())).items()
        changed = {group_id for group_id, version in versions if version is None or version > work.audited_version}
        changed |= self._late
        only = None
        if work.bucket is not None:
            changed = set(compress(changed, work.bucket.has_groups(list(changed)).tolist()))
            new = work.files.group_ids(OFFSET_COMMITS, log_partition, from_log_offset=self._begin)
            only = frozenset(compress(new, work.bucket.has_groups(new).tolist()))
        weights = {OFFSET_COMMITS: NEW_COMMIT_WEIGHT}
        kept: list[Piece] = []
        seen: set[str] = set()
        for some in bundles(work.files, log_partition, only, weights, from_log_offset=self._begin):
            before = saved.commits if some is None else saved.commits.of_some(some)
            pieces = new_commits(work.files, log_partition, self._begin, some)
            both, is_new = before.and_new(pieces, place)
            self._audit(both, is_new, changed if some is None else changed & some)
            of_parts = both.kept(ChainMap(self._made.pasts, saved.pasts))
            kept.append(of_parts.of_some(saved.not_judged | self._whole, are_others=True).piece)
            # `both` names all groups, but has commits of some only
            seen |= set(both.group_ids) if some is None else some
        if not changed <= self._noted:
            nothing = GroupedCommits.of(())
            self._audit(nothing, np.zeros(0, np.bool_), changed - self._noted)
        pasts = [saved.pasts.get(group_id) for group_id in self._whole]
        first = min((0 if past is None else past.first_log_offset for past in pasts), default=0)
        of_whole = _KeptBuilder()
        for bundle in group_bundles(work.files, log_partition, self._whole, from_log_offset=first):
            for life in bundle.lives():
                judged = self._made.judge(life, self._known, self._removed, self._former(life.group_id))
                if judged is not None:
                    of_whole.add(judged)
            del bundle  # before more is read
        kept.append(saved.commits.of_some(seen | saved.not_judged | self._whole, are_others=True).piece)
        kept.append(of_whole.built().piece)
        left = self._made.left(GroupedCommits.of(kept), self._commit_times.without(self._noted), saved)
        self._carry()
        return left

    def _former(self, group_id: str) -> Former | None:
        """Of a group that is judged from its beginning; None: all of its rows are made again."""
        past = self._saved.pasts.get(group_id)
        if past is None or group_id in self._late:
            return None
        days = self._days_before.of(self._log_partition, group_id)
        return Former(days, row_sums=None if group_id in self._saved.watermarks else past.row_sums)

    def _audit(self, commits: GroupedCommits, is_new: BoolArray, changed: Set[str]) -> None:
        """Audit the groups that `changed`, and those whose new commits matter for more than counts. For the others,
        add to the counts."""
        saved = self._saved
        if saved.not_judged:
            is_judged = np.array([group_id not in saved.not_judged for group_id in commits.group_ids], np.bool_)
            is_judged = is_judged[commits.group]
            commits, is_new = commits.taken(is_judged), is_new[is_judged]
        new = commits.taken(is_new)
        is_odd = is_noted(commits, is_new, saved.pasts, self._work.inference)
        noted = {*changed, *(commits.group_ids[code] for code in np.unique(commits.group[is_odd]).tolist())}
        noted -= saved.not_judged
        for (group_id, day), count in commit_counts(new.commits, new.group, new.group_ids).items():
            if group_id not in noted and not self._add_counts(group_id, day, DayCounts(count)):
                noted.add(group_id)
        self._noted |= noted
        self._commit_times = self._commit_times.and_new(new, self._place)
        watermarks = {
            group_id: unpacked_watermark(saved.watermarks[group_id]) for group_id in noted & saved.watermarks.keys()
        }
        slices = commits.slices() if noted else {}
        for some, bundle in bundles_with(self._work.files, self._log_partition, noted, commits, watermarks):
            for life in bundle.lives(also=some):
                rows = slices.get(life.group_id, slice(0, 0))
                self._judge(life, is_new[rows], watermarks.get(life.group_id))

    def _add_counts(self, group_id: str, day: int, counts: DayCounts) -> bool:
        """Add to the counts of a day, whether gold has a row of it or not. False: the new row's other columns are
        not known."""
        place = group_id, day
        if self._days_before.has(self._log_partition, group_id, day):
            self._counts[place] = self._counts.get(place, NO_COUNTS).plus(counts)
            return True
        row = self._quiet_days.get(place)
        before = NO_COUNTS if row is None else DayCounts.of(row)
        made = day_of_commits_only(self._saved.pasts[group_id], group_id, day, before.plus(counts))
        if made is not None:
            self._quiet_days[place] = made
        return made is not None

    def _judge_whole(self, group_id: str) -> None:
        self._noted.add(group_id)
        self._whole.add(group_id)

    def _judge(self, life: GroupLife, is_new: BoolArray, watermark: AuditWatermark | None) -> None:
        """Audit one group from where the last audit stopped, if the kept state suffices."""
        group_id = life.group_id
        if group_id in self._late:
            self._judge_whole(group_id)
            return
        past = self._saved.pasts.get(group_id)
        before, former_days = None, dict[int, GroupDayRow]()
        if past is not None:
            commit_times = self._commit_times_before.get(group_id, {})
            former_days = self._days_before.of(self._log_partition, group_id, _first_day(life, is_new, watermark))
            days = {day: DayCounts.of(row) for day, row in former_days.items()}
            before = GroupBefore(past, self._place, is_new, commit_times, days, watermark)
        try:
            timed = self._made.of_log(life)
            judged = judge_group(timed, self._work.inference, self._known, before, self._removed)
            until = NO_DAY if watermark is None else watermark.day
            share_days = [row for row in self._saved.days.get(group_id, ()) if row.day <= until]
            former = None if past is None else Former(former_days, until, past.row_sums)
            self._made.add(judged, self._place, share_days, former)
        except MemoryError:
            raise
        except Exception:
            self._judge_whole(group_id)
        else:
            if watermark is not None:
                self._counts |= {(group_id, day): counts for day, counts in judged.late.items()}

    def _carry(self) -> None:
        """Write the counts again, and remove the rows of the last audit that are no longer true."""
        parts, topic, log_partition = self._parts, self._work.topic, self._log_partition
        for place, count in self._made.recreated.items():
            self._add_counts(*place, DayCounts(went_back_count=-count))
        known = self._saved.pasts.keys() | self._saved.not_judged
        noted, whole = self._noted & known, self._whole & known
        for table, entry in GROUP_TABLES.items():
            if table not in ADDED_UP:
                again = dict.fromkeys(noted if entry.goes_by_end else whole, NO_PLACE) | self._made.stay_until[table]
                if groups := {group_id: place for group_id, place in again.items() if place < EVERY_PLACE}:
                    first = min(groups.values()) + 1
                    from_day = date.max if first == EVERY_PLACE else day_of(first)
                    parts.remove(table, Outdated(topic, log_partition, groups=groups, from_day=from_day))
        parts.remove(LOG_ANOMALIES, Outdated(topic, log_partition, groups=dict.fromkeys(whole, NO_PLACE)))
        settled = {group_id: self._made.stay_until[GROUP_SUMMARY].get(group_id, NO_DAY) for group_id in noted}
        counted, after = self._days_before.counted(log_partition, self._counts, settled)
        if after:
            from_day = day_of(min(after.values()))
            parts.remove(GROUP_SUMMARY, Outdated(topic, log_partition, groups=after, from_day=from_day))
        parts.write(GROUP_SUMMARY, counted)
        days = [day for (group_id, _), day in self._quiet_days.items() if group_id not in self._noted]
        parts.write_rows(GROUP_SUMMARY, days, log_partition)


def _first_day(life: GroupLife, is_new: BoolArray, watermark: AuditWatermark | None) -> int:
    """The first day whose counts are needed to judge a group from a watermark on."""
    if watermark is None:
        return NO_DAY
    at_ms = life.commits.applied_at_ms[is_new]
    first_ms = int(at_ms[at_ms >= 0].min(initial=watermark.day))
    return first_ms // DAY_MS * DAY_MS


def _leave_equal_days(days: list[GroupDayRow], former: Mapping[int, GroupDayRow], until: int) -> int:
    """Leave out the first days as long as their rows equal the former ones. Returns the last day up to which these
    stay; `until`: the one up to which they stay anyway."""
    later = sorted(day for day in former if day > until)
    equal = takewhile(lambda pair: pair[0] == former[pair[1]], zip(days, later, strict=False))
    kept = [day for _, day in equal]
    del days[: len(kept)]
    return max([until, *kept])
