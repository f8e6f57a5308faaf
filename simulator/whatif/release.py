"""Which release of Kafka a group's coordinator is played as: the requested one, otherwise the one that wrote the log,
as far as the log shows it.

1. The level of metadata.version in the metadata log shows the oldest release that any broker may have.
2. Records of consumer groups show rules that differ between releases (`Since`):

| what the rows of silver.group_generations show | release |
| --- | --- |
| a hash of the group's topics | 4.1 or later |
| no hash, though members got partitions in that epoch | before 4.1 |
| a group begins with epoch 2 | 4.3 or later |
| a group begins with epoch 1, written with a hash of its topics | before 4.3 |
| its last member left, and the assignment epoch followed | 4.4 or later |
| its last member left, and the assignment epoch stayed | before 4.4 |

If both allow several releases, the one nearest to the default is used. A cluster that was upgraded in the time in
question is played as the newer release.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KNOWN_VERSIONS, KafkaVersion, Since
from coordinator_core.history.rows import GenerationRow
from coordinator_core.inference.facts.configs import Configs
from coordinator_core.inference.facts.life import GroupLife
from schemas.group_types import GroupType


class ReleaseSource(StrEnum):
    """How the release was determined."""

    ASKED = "ASKED"
    FEATURE_LEVEL = "FEATURE_LEVEL"
    RECORDS = "RECORDS"
    DEFAULT = "DEFAULT"


class PlayedRelease(NamedTuple):
    """The release whose rules are played."""

    version: KafkaVersion
    source: ReleaseSource


UNKNOWN_RELEASE: Final = PlayedRelease(DEFAULT_VERSION, ReleaseSource.DEFAULT)
ABOUT: Final = {
    ReleaseSource.ASKED: "as asked for",
    ReleaseSource.FEATURE_LEVEL: "by the level of metadata.version in the log",
    ReleaseSource.RECORDS: "by what the group's records show",
    ReleaseSource.DEFAULT: "since the log does not tell the release: --kafka-version names another",
}
"""How the release was determined, as text."""


def played_release(
    life: GroupLife,
    generations: Sequence[GenerationRow],
    asked: KafkaVersion | None,
    configs: Configs,
    first_ms: int,
    last_ms: int,
) -> PlayedRelease:
    """The release for a group's generations in a time span. `configs` has the feature levels."""
    if asked is not None:
        return PlayedRelease(asked, ReleaseSource.ASKED)
    of_levels = [it for it in map(configs.least_release, (first_ms, last_ms)) if it is not None]
    shown = list(_shown(life, generations))
    least = max((since for since, holds in shown if holds), default=None)
    before = min((since for since, holds in shown if not holds), default=None)
    level = max(of_levels, default=None)
    if level is not None and (least is None or least <= level):
        return PlayedRelease(_nearest(level, [it for it in KNOWN_VERSIONS if it >= level]), ReleaseSource.FEATURE_LEVEL)
    possible = [it for it in KNOWN_VERSIONS if (least is None or it >= least) and (before is None or it < before)]
    if not shown:
        return UNKNOWN_RELEASE
    # an upgrade in the time in question: some records are from before it
    version = _nearest(level or DEFAULT_VERSION, possible) if possible else least or DEFAULT_VERSION
    return PlayedRelease(version, ReleaseSource.RECORDS)


def _nearest(wanted: KafkaVersion, possible: Iterable[KafkaVersion]) -> KafkaVersion:
    """The wanted one of ascending releases, else the next later one, else the last one."""
    releases = list(possible)
    return next((it for it in releases if it >= wanted), releases[-1])


def _shown(life: GroupLife, generations: Sequence[GenerationRow]) -> Iterator[tuple[KafkaVersion, bool]]:
    """Releases that introduced a rule, and whether the group's records follow the rule."""
    chosen = {row.from_log_offset for row in generations}
    assigned_at = sorted(row.from_log_offset for row in life.assignments)
    before: GenerationRow | None = None
    for row in life.generations:
        if row.group_type != GroupType.CONSUMER:
            before = row
            continue
        is_first = before is None or before.incarnation != row.incarnation
        if row.from_log_offset in chosen:
            if row.metadata_hash:
                yield Since.METADATA_HASH.version, True
            elif _is_any_in(assigned_at, row):
                yield Since.METADATA_HASH.version, False
            # a regular expression that matches nothing yet writes no epoch: a group may be seen at 1 in any release
            is_written = row.generation == 2 or (row.generation == 1 and row.metadata_hash)
            if is_first and is_written and row.from_log_offset < life.log.whole_to:
                yield Since.EPOCHS_BEGIN_AT_1.version, row.generation == 2
            if before is not None and not is_first and _is_last_leave(before, row):
                yield Since.LAST_MEMBER_WRITES_ASSIGNMENT_EPOCH.version, row.assignment_epoch == row.generation
        before = row


def _is_any_in(log_offsets: Sequence[int], row: GenerationRow) -> bool:
    """Whether one of the ascending log offsets is within an interval."""
    place = bisect_left(log_offsets, row.from_log_offset)
    return place < len(log_offsets) and (row.to_log_offset is None or log_offsets[place] < row.to_log_offset)


def _is_last_leave(before: GenerationRow, row: GenerationRow) -> bool:
    return (
        before.group_type == GroupType.CONSUMER
        and before.member_count > 0
        and row.member_count == 0
        and row.is_contiguous
        and row.assignment_epoch is not None
    )
