"""Subscription by pattern: patterns are resolved to topics in the background, for the whole group at once.

A member's new pattern has no topics until a task has resolved it; only then does the group rebalance. All patterns of a
group are resolved together, so that they cause a single rebalance: when a pattern or a topic is new, or after a long
time, and never twice within ten seconds.

Source: GroupMetadataManager.maybeUpdateRegularExpressions, handleRegularExpressionsResult; TopicRegexResolver.
"""

from enum import Enum
from typing import Final

from coordinator_core.live.consumer.patterns import InvalidPattern, compile_pattern
from coordinator_core.live.consumer.records import group_metadata_record, regex_record, regex_tombstone
from coordinator_core.live.consumer.update import MetadataWatch, believe_metadata
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.coordinator.metadata_hash import metadata_hash
from coordinator_core.live.coordinator.operation import NOTHING, Context, Result
from coordinator_core.live.coordinator.records import CoordinatorRecord
from coordinator_core.replay.consumer.state import ConsumerGroup, ConsumerMember, ResolvedRegex
from coordinator_core.replay.consumer.subscriptions import count_resolved, subscriptions_of
from schemas.error_codes import ErrorCode

RESOLVE_REGEXES: Final = "consumer_resolve_regexes"

REGEX_REFRESH_MIN_INTERVAL_MS: Final = 10_000
"""REGEX_BATCH_REFRESH_MIN_INTERVAL_MS, fixed in Kafka."""


class RegexChange(Enum):
    """What a heartbeat changed in the member's pattern (UpdateRegularExpressionStatus)."""

    NONE = "none"
    UPDATED = "updated"
    """The pattern changed, and has no topics yet."""
    UPDATED_AND_RESOLVED = "updated and resolved"
    """The pattern changed to one with known topics, or to none: the group has to rebalance."""

    @property
    def is_change(self) -> bool:
        return self != RegexChange.NONE


def task_key(group_id: str) -> str:
    """Key of the task that resolves a group's patterns."""
    return f"{group_id}-regex"


def update_regexes(
    context: Context,
    group: ConsumerGroup,
    member: ConsumerMember,
    updated: ConsumerMember,
    records: list[CoordinatorRecord],
) -> RegexChange:
    """Delete a pattern that only this member used, and queue the task if it is needed.

    Raises Refused (INVALID_REGULAR_EXPRESSION) for a new pattern that is invalid.
    """
    known = subscriptions_of(group).regexes
    old, new = member.subscribed_topic_regex, updated.subscribed_topic_regex
    change = RegexChange.NONE
    is_unknown = False
    if old != new:
        if old and known[old] == 1:
            records.append(regex_tombstone(group.group_id, old))
        is_unknown = bool(new) and not known[new or ""]
        if is_unknown:
            _check(new or "")
        is_settled = new in group.resolved_regexes and not is_unknown if new else bool(old)
        change = RegexChange.UPDATED_AND_RESOLVED if is_settled else RegexChange.UPDATED
    if known or is_unknown:
        _schedule(context, group, old, new, is_unknown=is_unknown)
    return change


def _check(regex: str) -> None:
    try:
        compile_pattern(regex)
    except InvalidPattern as error:
        text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error.description}."
        raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error


def _schedule(context: Context, group: ConsumerGroup, old: str | None, new: str | None, *, is_unknown: bool) -> None:
    if task_key(group.group_id) in context.coordinator.tasks:
        return
    last = next(iter(group.resolved_regexes.values()), None)
    if last is not None and context.now_ms <= last.timestamp_ms + REGEX_REFRESH_MIN_INTERVAL_MS:
        return
    counts = subscriptions_of(group).regexes.copy()
    counts.subtract([old] if old else [])
    counts.update([new] if new else [])
    wanted = tuple(sorted(regex for regex, count in counts.items() if count > 0))
    refresh_ms = context.config.group_consumer_regex_refresh_interval_ms
    is_due = (
        is_unknown
        or len(wanted) != len(group.resolved_regexes)
        or (last.version if last else 0) < context.live(MetadataWatch).version_with_new_topics
        or last is None
        or context.now_ms > last.timestamp_ms + refresh_ms
    )
    if is_due and wanted:
        context.schedule_task(task_key(group.group_id), RESOLVE_REGEXES, group.group_id, wanted)


def resolve(image: MetadataImage, regexes: tuple[str, ...], now_ms: int) -> dict[str, ResolvedRegex]:
    """Pattern -> the topics whose whole name it matches. An invalid pattern has no topics."""
    resolved = {}
    for regex in regexes:
        try:
            pattern = compile_pattern(regex)
        except InvalidPattern:
            topics: tuple[str, ...] = ()
        else:
            topics = tuple(name for name in sorted(image.topics) if pattern.matches(name))
        resolved[regex] = ResolvedRegex(topics, image.version, now_ms)
    return resolved


def resolve_regexes(context: Context, group_id: str, regexes: tuple[str, ...]) -> Result:
    """The task: write the topics of each pattern; the epoch is bumped if any topic changed."""
    group = context.group(group_id)
    if not isinstance(group, ConsumerGroup):
        return NOTHING
    known = subscriptions_of(group)
    resolved = {
        regex: found
        for regex, found in resolve(context.image, regexes, context.now_ms).items()
        if known.regexes[regex] > 0
    }
    after = {**group.resolved_regexes, **resolved}
    records = [regex_record(group_id, regex, found) for regex, found in resolved.items()]
    is_changed = any(_topics(group, regex) != frozenset(found.topics) for regex, found in resolved.items())
    new_hash = metadata_hash(context.image, known.by_name.keys() | count_resolved(after.values()).keys())
    if is_changed or new_hash != group.metadata_hash:
        records.append(group_metadata_record(group_id, group.group_epoch + 1, new_hash))
        believe_metadata(context, group, group.group_epoch + 1)
    return Result(tuple(records))


def _topics(group: ConsumerGroup, regex: str) -> frozenset[str]:
    resolved = group.resolved_regexes.get(regex)
    return frozenset() if resolved is None else frozenset(resolved.topics)
