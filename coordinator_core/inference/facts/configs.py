"""Configs in force at a time, from silver.configs: those of a group first, else those of all brokers.

A group's own config (`share.delivery.count.limit`) overrides the brokers' (`group.share.delivery.count.limit`), as in
GroupConfigManager. Brokers' config files are in no log: the caller's default is used for them, and marked as not known.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from coordinator_core.bytes.kafka_versions import METADATA_VERSION, KafkaVersion, least_release
from coordinator_core.bytes.log.chunk import I64, BoolArray
from coordinator_core.history.simple_log import FEATURE, IS_TRANSACTIONAL, TRANSACTION
from schemas.group_types import GroupType

GROUP: Final = "GROUP"
TOPIC: Final = "TOPIC"
BROKER: Final = "BROKER"
ALL_BROKERS: Final = ""
"""Resource name for the default of all brokers."""

DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
RECORD_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SESSION_TIMEOUTS: Final[Mapping[str, str]] = {
    GroupType.CONSUMER: "consumer.session.timeout.ms",
    GroupType.SHARE: SHARE_SESSION_TIMEOUT,
    GroupType.STREAMS: "streams.session.timeout.ms",
}
"""Group type -> the config of its members' session timeout. Classic members send their own."""
ISOLATION_LEVEL: Final = "share.isolation.level"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTERS_ENABLED: Final = "errors.deadletterqueue.group.enable"
"""A topic config: without it brokers copy no dead letters to the topic, whatever a group's config says."""
DEAD_LETTER_PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
"""A broker config: brokers copy dead letters only to topics whose name has this prefix, enabled or not."""
DEAD_LETTER_RETRIES_MS: Final = 30_000
"""How long, at most, a broker retries the copy of a record. It may create the topic meanwhile."""
CLEANUP_POLICY: Final = "cleanup.policy"
STREAMS_ASSIGNOR: Final = "streams.assignor.name"
"""A group config since Kafka 4.4 (KIP-1357): the assignor for the coordinator's next assignment."""

READ_COMMITTED: Final = "read_committed"
SETTLING_MS: Final = 1_000
"""Brokers apply a change some time after it was written, and the controller's clock may be ahead of theirs. Within this
time of a change, no value is known to be in force.
"""
_AROUND_MS: Final = (-SETTLING_MS, 0, SETTLING_MS)

_FOREVER: Final = 2**63 - 1


class ConfigRow(NamedTuple):
    """silver.configs. Times are epoch ms."""

    resource_type: str
    resource_name: str
    name: str
    value: str | None
    from_log_offset: int | None
    """None: from an Admin snapshot, not from the metadata log."""
    valid_from: int | None
    valid_to: int | None


@dataclass(frozen=True, slots=True)
class KnownNumbers:
    """One number for each row. `is_known`: the log contains it; else it is the default."""

    values: I64
    is_known: BoolArray


@dataclass(frozen=True, slots=True)
class _Timeline:
    """Intervals of one config of one resource, in time order."""

    starts_ms: I64
    ends_ms: I64
    values: tuple[str, ...]

    def at(self, at_ms: I64) -> I64:
        """Index of the interval that contains each time; -1 if none does."""
        index = np.searchsorted(self.starts_ms, at_ms, side="right") - 1
        if not len(self.starts_ms):
            return index
        return np.where((index >= 0) & (at_ms < self.ends_ms[index]), index, -1)

    def until(self, at_ms: int) -> list[tuple[int, int, str]]:
        """The intervals that had begun at a time, cut off after it."""
        intervals = zip(self.starts_ms.tolist(), self.ends_ms.tolist(), self.values, strict=True)
        return [(start, min(end, at_ms + 1), value) for start, end, value in intervals if start <= at_ms]


class Configs:
    """All known configs, with look-ups for many rows at once."""

    def __init__(self, rows: Iterable[ConfigRow] = ()) -> None:
        intervals: dict[tuple[str, str, str], list[ConfigRow]] = {}
        for row in rows:
            if row.value is not None:
                intervals.setdefault((row.resource_type, row.resource_name, row.name), []).append(row)
        self._logged = {place[0] for place, found in intervals.items() if any(_is_logged(row) for row in found)}
        """Types of resources that the metadata log tells something about; none: it was not captured."""
        self._timelines = {key: _timeline(found) for key, found in intervals.items()}
        self._of_single_brokers = {
            name for resource_type, resource_name, name in intervals if resource_type == BROKER and resource_name
        }

    def numbers(self, name: str, groups: Sequence[str], group: I64, at_ms: I64, default: int) -> KnownNumbers:
        """A numeric config of groups, which for brokers is named `group.<name>`.

        `group[i]`, an index into `groups`, is the group of row i, and `at_ms[i]` its time. A value is known if it is in
        force at that time, and `SETTLING_MS` before and after it. Where single brokers have their own values, it is not
        known.
        """
        values = np.full(len(group), default, np.int64)
        is_known = np.zeros(len(group), np.bool_)
        broker_name = f"group.{name}"
        of_brokers = self._timelines.get((BROKER, ALL_BROKERS, broker_name))
        if of_brokers is not None:
            _fill(of_brokers, at_ms, np.arange(len(group)), values, is_known)
            is_known &= broker_name not in self._of_single_brokers
        for timeline, rows in self._of_groups(name, groups, group):
            _fill(timeline, at_ms, rows, values, is_known)
        return KnownNumbers(values, is_known)

    def least_release(self, at_ms: int) -> KafkaVersion | None:
        """The oldest release that may have written to the log at a time, by the level of metadata.version.

        None if the metadata log does not show it.
        """
        starts_ms, releases = self._releases
        # clocks of the controller and of the coordinator may differ
        first, last = bisect_right(starts_ms, at_ms - SETTLING_MS), bisect_right(starts_ms, at_ms + SETTLING_MS)
        possible = releases[first : last + 1]
        return None if None in possible else min(filter(None, possible))

    @cached_property
    def _releases(self) -> tuple[list[int], list[KafkaVersion | None]]:
        """When the oldest possible release changed, and the releases: the one before the first time, then one from each
        time on.
        """
        timeline = self._timelines.get((FEATURE, "", METADATA_VERSION))
        if timeline is None:
            return [], [None]
        return timeline.starts_ms.tolist(), [None, *(least_release(_number(text)) for text in timeline.values)]

    def has(self, name: str, group_id: str) -> bool:
        """Whether the log has a value of a group's config, its own or that of all brokers, at any time."""
        return (GROUP, group_id, name) in self._timelines or (BROKER, ALL_BROKERS, f"group.{name}") in self._timelines

    def session_timeout_ms(self, group_type: str, group_id: str, ended_at_ms: int) -> int | None:
        """The session timeout (ms) of a member that departed at `ended_at_ms`, by its group's config. None if the
        log does not have it, or where the group is classic, since classic members send their own.

        The coordinator sets a session's end at each heartbeat, by the config in force at that time
        (GroupMetadataManager.scheduleConsumerGroupSessionTimeout and similar methods). So if the config changed while
        the session ran out, the value before the change counts.
        """
        name = SESSION_TIMEOUTS.get(group_type)
        ending_ms = None if name is None else self._number_at(name, group_id, ended_at_ms)
        if name is None or ending_ms is None:
            return None
        return self._number_at(name, group_id, ended_at_ms - ending_ms)

    def _number_at(self, name: str, group_id: str, at_ms: int) -> int | None:
        """The known value at a time; while a change settles, the known value before it."""
        times = np.array([at_ms, at_ms - 2 * SETTLING_MS], np.int64)
        found = self.numbers(name, (group_id,), np.zeros(2, np.int64), times, -1)
        known: list[int] = found.values[found.is_known].tolist()
        return known[0] if known else None

    def equals(self, name: str, value: str, groups: Sequence[str], group: I64, at_ms: I64) -> BoolArray:
        """For each row, whether a group's own config has a value; for a row without a time, whether it ever had. False
        if the log does not show it.
        """
        found = np.zeros(len(group), np.bool_)
        for timeline, rows in self._of_groups(name, groups, group):
            times = at_ms[rows]
            index = timeline.at(times)
            found[rows] = _of_values(timeline, index, lambda text: text == value)
            found[rows] |= (times < 0) & (value in timeline.values)
        return found

    def is_shown(self, name: str, groups: Sequence[str], group: I64, at_ms: I64) -> BoolArray:
        """For each row, whether a group's own config, which `equals` looks up, is known: by the metadata log, in which
        a config that was never set has no row, or by a report of that time.
        """
        found = np.full(len(group), bool(self._logged), np.bool_)
        for timeline, rows in self._of_groups(name, groups, group):
            found[rows] |= timeline.at(at_ms[rows]) >= 0
        return found

    def is_set(self, name: str, groups: Sequence[str], group: I64, at_ms: I64) -> BoolArray:
        """For each row, whether a group's own config has a non-empty value, `SETTLING_MS` before and after it too."""
        found = np.zeros(len(group), np.bool_)
        for timeline, rows in self._of_groups(name, groups, group):
            found[rows] = True
            for away_ms in _AROUND_MS:
                found[rows] &= _of_values(timeline, timeline.at(at_ms[rows] + away_ms), bool)
        return found

    def is_refused(self, groups: Sequence[str], group: I64, at_ms: I64) -> BoolArray:
        """For each row, whether a broker that tries to copy to a group's dead letter topic is refused: the topic is not
        enabled for groups, or has a name without the brokers' prefix. False if the metadata log does not show it.
        """
        found = np.zeros(len(group), np.bool_)
        if self._logged <= {FEATURE}:
            return found
        for timeline, rows in self._of_groups(DEAD_LETTER_TOPIC, groups, group):
            times = at_ms[rows]
            index = timeline.at(times)
            for code, topic in enumerate(timeline.values):
                is_of_topic = (index == code) & (topic != "")
                enabled = self._timelines.get((TOPIC, topic, DEAD_LETTERS_ENABLED))
                found[rows] |= is_of_topic & (~_was_enabled(enabled, times) | self._is_misnamed(topic, times))
        return found

    def _is_misnamed(self, topic: str, at_ms: I64) -> BoolArray:
        """Whether a topic lacks the prefix that brokers require for dead letter topics, by every known value."""
        found = np.full(len(at_ms), bool(self._dead_letter_prefixes), np.bool_)
        for place in self._dead_letter_prefixes:
            timeline = self._timelines[place]
            for away_ms in _AROUND_MS:
                index = timeline.at(at_ms + away_ms)
                found &= _of_values(timeline, index, lambda prefix: not topic.startswith(prefix))
        return found

    @cached_property
    def _dead_letter_prefixes(self) -> list[tuple[str, str, str]]:
        """The places of known prefixes: for all brokers, or for single ones."""
        return sorted(place for place in self._timelines if place[0] == BROKER and place[2] == DEAD_LETTER_PREFIX)

    def was_compacted(self, topics: Sequence[str | None]) -> BoolArray:
        """Whether a topic was ever configured as compacted, as far as the log shows."""
        return np.array([topic in self._compacted for topic in topics], np.bool_)

    def was_transactional(self, topics: Sequence[str | None]) -> BoolArray:
        """Whether transactions are known to have written to a topic at any time."""
        return np.array([(TRANSACTION, topic, IS_TRANSACTIONAL) in self._timelines for topic in topics], np.bool_)

    @cached_property
    def _compacted(self) -> frozenset[str]:
        """The topics that were ever configured as compacted."""
        return frozenset(
            resource_name
            for (resource_type, resource_name, name), timeline in self._timelines.items()
            if resource_type == TOPIC
            and name == CLEANUP_POLICY
            and any("compact" in value.split(",") for value in timeline.values)
        )

    def of_share_groups(self, group_ids: Sequence[str], topics: Sequence[str], until_ms: int) -> list[object]:
        """All configs that inference uses for some share groups and their topics up to `until_ms`, as a comparable
        value.
        """
        names = (DELIVERY_COUNT_LIMIT, RECORD_LOCK_DURATION, SHARE_SESSION_TIMEOUT, ISOLATION_LEVEL, DEAD_LETTER_TOPIC)
        places = [(BROKER, ALL_BROKERS, f"group.{name}") for name in names]
        places += [(GROUP, group_id, name) for group_id in group_ids for name in names]
        letters = (self._timelines.get((GROUP, group_id, DEAD_LETTER_TOPIC)) for group_id in group_ids)
        copied_to = sorted({topic for timeline in letters if timeline is not None for topic in timeline.values})
        places += [(TOPIC, topic, DEAD_LETTERS_ENABLED) for topic in copied_to]
        places += self._dead_letter_prefixes if copied_to else []
        intervals = [(place, self._timelines[place].until(until_ms)) for place in places if place in self._timelines]
        single = sorted(self._of_single_brokers & {f"group.{name}" for name in names})
        levels = (self._timelines.get((GROUP, group_id, ISOLATION_LEVEL)) for group_id in group_ids)
        were_committed = [level is not None and READ_COMMITTED in level.values for level in levels]
        kinds_of_topics = self.was_compacted(topics).tolist(), self.was_transactional(topics).tolist()
        return [intervals, single, kinds_of_topics, were_committed, bool(self._logged)]

    def _of_groups(self, name: str, groups: Sequence[str], group: I64) -> Iterable[tuple[_Timeline, I64]]:
        """Timelines of the groups that have one, each with the group's rows."""
        configured = [code for code, group_id in enumerate(groups) if (GROUP, group_id, name) in self._timelines]
        if not configured:
            return
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(groups) + 1))
        for code in configured:
            yield self._timelines[GROUP, groups[code], name], order[bounds[code] : bounds[code + 1]]


NO_CONFIGS: Final = Configs()
"""No metadata log was captured."""


def _is_logged(row: ConfigRow) -> bool:
    return row.from_log_offset is not None


def _timeline(rows: list[ConfigRow]) -> _Timeline:
    logged = sorted(
        ((row.from_log_offset, row) for row in rows if row.from_log_offset is not None), key=lambda it: it[0]
    )
    # an unknown time becomes that of the row before: searchsorted needs ascending times
    times = accumulate((row.valid_from or 0 for _, row in logged), max)
    timed = [(at_ms, row) for at_ms, (_, row) in zip(times, logged, strict=True)]
    timed += ((row.valid_from or 0, row) for row in rows if row.from_log_offset is None)
    timed.sort(key=lambda it: it[0])
    rows = [row for _, row in timed]
    return _Timeline(
        np.array([at_ms for at_ms, _ in timed], np.int64),
        np.array([_FOREVER if row.valid_to is None else row.valid_to for row in rows], np.int64),
        tuple(row.value or "" for row in rows),
    )


def _fill(timeline: _Timeline, at_ms: I64, rows: I64, values: I64, is_known: BoolArray) -> None:
    """Fill in the timeline's values; rows outside of it keep theirs."""
    numbers = np.array([_number(text) for text in timeline.values], np.int64)
    index = timeline.at(at_ms[rows])
    says = (index >= 0) & (numbers[index] >= 0)
    known_rows = rows[says]
    values[known_rows] = numbers[index[says]]
    is_known[known_rows] = True
    for away_ms in _AROUND_MS:
        near = timeline.at(at_ms[known_rows] + away_ms)
        is_known[known_rows] &= (near >= 0) & (numbers[near] == values[known_rows])


def _number(text: str) -> int:
    """-1: not a number that Kafka would accept."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def _was_enabled(enabled: _Timeline | None, at_ms: I64) -> BoolArray:
    """Whether a config was true at any moment at which a broker that starts at a time may read it."""
    found = np.zeros(len(at_ms), np.bool_)
    if enabled is None:
        return found
    for start, end, value in zip(enabled.starts_ms.tolist(), enabled.ends_ms.tolist(), enabled.values, strict=True):
        if value.lower() == "true":
            found |= (start <= at_ms + DEAD_LETTER_RETRIES_MS) & (at_ms - SETTLING_MS < end)
    return found


def _of_values(timeline: _Timeline, index: I64, is_wanted: Callable[[str], bool]) -> BoolArray:
    wanted = np.array([is_wanted(text) for text in timeline.values], np.bool_)
    found: BoolArray = (index >= 0) & wanted[index]
    return found
