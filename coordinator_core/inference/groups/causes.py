"""Why a group rebalanced.

The log has the result of a rebalance. A cause is certain if the operation that wrote the generation shows it: a
member joined, a subscription changed, the metadata hash changed. That a member departed is just as certain, but not why
(`leave_reasons`). A classic generation without any such change was triggered by a member that joined again: its leader,
which saw the partitions of its topics change; a cooperative member that had revoked partitions for the next round; or a
client that simply asked for it (Consumer.enforceRebalance). The first two show in the assignments, the last does not. A
leader may also learn late of partitions that existed before, so that "new partitions" is certain only where the
metadata log shows that the topic grew between the two generations. Some clients (of other languages) ask for the
metadata of a topic when a member subscribes to it, and assign without it in the meantime. Their leader joins again once
it knows the topic, and that rebalance only follows up the generation before. A static member that returns triggers no
rebalance by itself (KIP-345): the coordinator only gives it another member id. A group that was converted to the
classic protocol rebalances after that: the coordinator triggers it (convertToClassicGroup), and the partitions of the
last member that left are assigned then.

Connect workers rebalance in steps (KIP-415). Workers that had to revoke something join again at once; the tasks of a
worker that departed are assigned after the leader has waited for its return; and the leader assigns what the config
topic contains at that time. The details of a generation's event show which of these it was.

Kafka Streams announces in an assignment when a member is to join again (KIP-441, nextScheduledRebalanceMs).
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from coordinator_core.bytes.kafka_versions import KafkaVersion, Since
from coordinator_core.confidence import CERTAIN, CONFIDENCES, GUESS, LIKELY
from coordinator_core.history.rows import (
    ASSIGNMENT_CONFIGS_CHANGED,
    NEXT_REBALANCE,
    PATTERNS_CHANGED,
    PATTERNS_NEW,
    EventRow,
    GenerationRow,
)
from coordinator_core.history.views import COMMITTED_BEFORE, TOPICS_AFTER, TOPICS_BEFORE
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.groups.leave_reasons import ALIVE, REBALANCE_TIMEOUT, SILENT, UNSEEN
from coordinator_core.inference.groups.reassignment import EAGER_PROTOCOLS, Reassignment
from schemas.group_types import GroupType

COOPERATIVE_STICKY: Final = "cooperative-sticky"
COOPERATIVE_PROTOCOLS: Final = frozenset({COOPERATIVE_STICKY, "stream"})
"""Assignors that move a partition in two rounds: the first revokes it, the second assigns it. `stream` is the name that
clients of Kafka Streams use."""
COOPERATIVE_FOLLOW_UP: Final = "COOPERATIVE_FOLLOW_UP"
CONVERSION_FOLLOW_UP: Final = "CONVERSION_FOLLOW_UP"
CONNECT_DELAY_OVER: Final = "CONNECT_DELAY_OVER"
METADATA_FOLLOW_UP: Final = "METADATA_FOLLOW_UP"
PATTERN_RESOLVED: Final = "PATTERN_RESOLVED"
CONVERTED: Final = "GROUP_CONVERTED"
REPLACEMENT_COUNTS: Final = frozenset({GroupType.CLASSIC, GroupType.STREAMS})
"""Group types in which a returning static member may have brought a reason to rebalance: metadata of a classic
protocol, another process of Kafka Streams. In a consumer group its records show the reason."""

CONNECT: Final = "connect"
DELAY_SLACK_MS: Final = 100
"""By how much timestamps of one broker may differ from the time at which a worker set its clock."""
DELAY_REJOIN_MS: Final = 10_000
"""When a delay is over, its workers join again, most of them with their next heartbeat (3 s)."""
LATE_METADATA_MS: Final = 10_000
"""A leader that lacks the metadata of a topic gets it, and the members join again, within this time."""

FIRST_EPOCH: Final = 2
"""The first group epoch in a log of Kafka 4.3 and later (ModernGroup); it is 1 before."""


PROBING_REBALANCE: Final = "PROBING_REBALANCE"
"""Kafka Streams, to see whether tasks that are being restored have caught up (KIP-441)."""
PREFERRED_ASSIGNOR: Final = "PREFERRED_ASSIGNOR"
STARTED: Final = "GENERATION_STARTED"
NO_CONFIGS: Final = "{}"
ORDER: Final = (
    "GROUP_CONVERTED",
    "GROUP_EMPTIED",
    "FIRST",
    "MEMBER_JOINED",
    "SUBSCRIPTION_CHANGED",
    "MEMBER_LEFT",
    "MEMBER_EXPIRED",
    "CONFIG_CHANGED",
    "PARTITIONS_CHANGED",
    "PROTOCOL_CHANGED",
    "STATIC_MEMBER_REPLACED",
    "ASSIGNMENT_REFINED",
    PROBING_REBALANCE,
    "UNKNOWN",
)
"""Order of causes; the first one is the main cause. Causes that trigger a rebalance by themselves come before inferred
ones.
"""


class GenerationStart(NamedTuple):
    """The operation that began a generation, with its context."""

    row: GenerationRow
    previous: GenerationRow | None
    """The generation before it of the same incarnation."""
    events: tuple[EventRow, ...]
    """Events of the operation itself."""
    since_previous: tuple[EventRow, ...]
    """Events since the previous generation, including that of the previous and of this one."""
    leave_reasons: tuple[Claim, ...]
    """Why each member departed."""
    member_count: int
    """Number of members after it."""
    has_pattern: bool
    """Whether a member subscribes with a pattern."""
    reassignment: Reassignment
    """What its plan changed."""
    had_members: bool
    is_timeless: bool = False
    """Whether its records have no timestamp, which would show that they belong to one operation."""
    has_unread: bool = False
    """Whether the subscription of a member is not in the log."""
    has_gap: bool = False
    """Whether a part of the log is missing between the previous generation and this one."""
    has_hole: bool = False
    """Whether records may be missing since the last generation, also one of a former group of this id, for any reason,
    compaction included."""
    has_gap_before: bool = False
    """Whether a part of the log is missing anywhere before it. Then members may have joined there."""
    may_have_others: bool = False
    """Whether there may be members whose records cannot be read."""
    has_grown: bool = False
    """Whether the metadata log shows that a topic with newly assigned partitions grew between the two generations."""
    is_soon: bool = False
    """Whether its join phase ended within `LATE_METADATA_MS` of the previous generation."""
    has_vanished: bool = False
    """Whether partitions lost their owner that the remaining members would have been assigned if they existed."""
    has_revoked: bool = False
    """Whether the previous generation revoked partitions from members that stayed."""
    is_late: bool = False
    """Whether its join phase ended after each member of the previous generation had its full rebalance timeout to join
    again.
    """
    before_return: frozenset[Claim] = frozenset()
    """What is known of static members before they came back (`find_replaced`). In a classic group a session may
    have expired before, which makes the others join again."""
    least_release: KafkaVersion | None = None
    """The oldest release that may have written it, if the metadata log shows one."""
    previous_least_release: KafkaVersion | None = None
    """The oldest release that may have written the previous generation."""

    @property
    def is_waited_out(self) -> bool:
        """Whether members departed only because they did not join again. Then something else triggered the
        rebalance."""
        return bool(self.leave_reasons) and {reason.method for reason in self.leave_reasons} == {REBALANCE_TIMEOUT}

    @property
    def may_be_recreated(self) -> bool:
        """Whether the group may have been deleted and created again between the two, and its generations fit by chance:
        all members are new, and records that would show it may be missing.
        """
        return self.has_hole and self.had_members and 0 < self.member_count == self.joined_count

    @property
    def joined_count(self) -> int:
        """Number of members that joined with the operation."""
        return sum(event.event_type == "MEMBER_JOINED" for event in self.events)

    def has(self, event_type: str) -> bool:
        """Whether the operation has an event of this type."""
        return any(event.event_type == event_type for event in self.events)

    def value_of(self, events: Sequence[EventRow], generation: GenerationRow | None, name: str) -> int | None:
        """A number from the details of a generation's event."""
        for event in events:
            if generation is not None and event.event_type == STARTED and event.generation == generation.generation:
                number = event.details.get(name)
                return None if number is None else int(number)
        return None

    def before_and_now(self, name: str) -> tuple[int | None, int | None]:
        """A number from the events of the previous generation and of this one."""
        return self.value_of(self.since_previous, self.previous, name), self.value_of(self.events, self.row, name)


def find_causes(step: GenerationStart, before: Sequence[Claim]) -> list[Claim]:
    """All causes of a rebalance, the main one first. `before`: the causes of the previous rebalance."""
    if is_first_seen(step):
        return [Claim("UNKNOWN", "FIRST_SEEN", GUESS)]
    causes = [*_by_events(step), *step.leave_reasons]
    if step.is_timeless and step.has("MEMBER_LEFT") and not step.leave_reasons:
        causes.append(Claim("UNKNOWN", "LEFT_OR_EXPIRED", GUESS))  # its records need not end with the operation's last
    if step.row.group_type != GroupType.CLASSIC:
        for rule in (_by_metadata, _by_assignor):
            # these rest on what the operation does not have, and compaction may have removed a record of it
            causes.extend(claim.weighed(step.has_hole) for claim in rule(step, causes))
        if not causes and step.has("STATIC_MEMBER_REPLACED"):
            causes.append(Claim("STATIC_MEMBER_REPLACED", "IN_LOG", GUESS))
    elif not causes and _follows_conversion(step, before):
        causes.append(Claim(CONVERTED, CONVERSION_FOLLOW_UP, LIKELY))
    else:
        causes.extend(_weighed_by_replacement(step, cause) for cause in _by_assignment(step))
    if not causes:
        causes.append(_by_default(step, before))
    # generations are missing before this one, or the events may belong to another operation or another group
    is_doubtful = not step.row.is_contiguous or step.is_timeless or step.has_gap or step.may_be_recreated
    causes = [claim.weighed(is_doubtful) for claim in causes]
    surest: dict[str, Claim] = {}
    for cause in sorted(set(causes), key=_order):
        surest.setdefault(cause.cause, cause)
    return list(surest.values())


def is_first_seen(step: GenerationStart) -> bool:
    """Whether the log begins in the middle of the group's life, so that the cause is unknown.

    Several members that create a group in one operation raise its epoch once each, which still is a beginning. Epoch 1
    is not a beginning where compaction left only members' metadata, or where rows without times do not show that an
    operation goes on; and the epoch after it is just as unknown.
    """
    if _has_unknown_epoch(step.row, step.events) or _has_committed_before(step.row, step.events):
        return True
    if step.previous is not None:
        before, events = step.previous, step.since_previous
        if _has_unknown_epoch(before, events):
            return before.is_contiguous or not step.row.is_contiguous
        return not step.row.is_contiguous and _has_committed_before(before, events)
    if step.row.is_contiguous or (step.has("GROUP_CONVERTED") and not step.has_hole):
        return False
    is_beginning = (
        step.row.group_type != GroupType.CLASSIC and 1 <= step.row.generation <= FIRST_EPOCH + step.joined_count - 1
    )
    return not (is_beginning and step.joined_count == step.member_count)


def _has_unknown_epoch(row: GenerationRow, events: Sequence[EventRow]) -> bool:
    """Whether a generation has the epoch with which Kafka creates a group, without a record that shows it."""
    return any(
        event.event_type == STARTED or (event.event_type == "GROUP_CREATED" and row.is_contiguous)
        for event in events
        if event.generation == row.generation and "first_seen" in event.details
    )


def _has_committed_before(row: GenerationRow, events: Sequence[EventRow]) -> bool:
    """Whether a generation is the first one known of a group that had committed before."""
    return any(event.generation == row.generation and COMMITTED_BEFORE in event.details for event in events)


def is_unread(step: GenerationStart) -> bool:
    """Whether an assignment of this or of the previous generation cannot be read, so that movements are unknown."""
    return bool(step.row.unread_members) or (step.previous is not None and bool(step.previous.unread_members))


def _order(cause: Claim) -> tuple[int, int, str]:
    return ORDER.index(cause.cause), CONFIDENCES.index(cause.confidence), cause.method


def _by_events(step: GenerationStart) -> Iterable[Claim]:
    """Causes that the operation's own records prove."""
    is_converted = step.has("GROUP_CONVERTED")
    # the former group may have been deleted in records that are missing, by compaction, too, if it was read before
    may_be_new = is_converted and step.has_hole
    if is_converted:
        yield Claim("GROUP_CONVERTED", "CONVERTED", CERTAIN).weighed(may_be_new)
    if not step.member_count and not step.may_have_others:
        # a group without known members may have had some that are in no record; behind a missing part of the log it may
        # have others still, unless one record names all members
        is_sure = step.had_members and not (step.has_gap_before and step.row.group_type != GroupType.CLASSIC)
        yield Claim("GROUP_EMPTIED", "NO_MEMBERS_LEFT", CERTAIN).weighed(not is_sure)
    elif step.member_count and _is_first(step):
        yield Claim("FIRST", "FIRST_GENERATION", CERTAIN).weighed(may_be_new)
    for event_type in ("MEMBER_JOINED", "SUBSCRIPTION_CHANGED"):
        if step.has(event_type):
            is_doubtful = _may_wait_for_topics(step, event_type)
            is_doubtful |= event_type == "MEMBER_JOINED" and _may_have_joined_before(step)
            yield Claim(event_type, "IN_LOG", CERTAIN).weighed(is_doubtful)
    if step.has("STATIC_MEMBER_REPLACED") and step.row.group_type in REPLACEMENT_COUNTS:
        if SILENT in step.before_return:
            yield SILENT
        else:
            is_guess = bool(step.leave_reasons) or UNSEEN in step.before_return
            yield Claim("STATIC_MEMBER_REPLACED", "IN_LOG", LIKELY).weighed(is_guess, at_most=GUESS)
    for event in step.events:
        if event.event_type == ASSIGNMENT_CONFIGS_CHANGED:
            # releases before 4.3 wrote no configs: the first ones after an upgrade differ, even if nothing changed
            may_be_unwritten = not Since.STREAMS_ASSIGNMENT_CONFIGS.is_proven_by(step.previous_least_release)
            is_first = event.details["from"] == NO_CONFIGS and may_be_unwritten
            yield Claim("CONFIG_CHANGED", "ASSIGNMENT_CONFIGS", CERTAIN).weighed(is_first, at_most=GUESS)
    if any(event.event_type == "TARGET_COMPUTED" and event.details.get("kept") for event in step.events):
        yield Claim("ASSIGNMENT_REFINED", "TARGET_KEPT", CERTAIN)
    if step.has("TOPOLOGY_CHANGED") and not step.has("MEMBER_JOINED"):
        yield Claim("SUBSCRIPTION_CHANGED", "TOPOLOGY_IN_LOG", CERTAIN)
    if step.has("PROTOCOL_CHANGED") and step.row.group_type == GroupType.CLASSIC:
        yield Claim("PROTOCOL_CHANGED", "IN_LOG", LIKELY)


def _may_have_joined_before(step: GenerationStart) -> bool:
    """Whether all members that seem to have joined may have done so in a missing part of the log: their metadata are
    rewritten when they change, too. A member that joins is reconciled from epoch 0 in the same operation.
    """
    if step.row.group_type == GroupType.CLASSIC or not step.has_gap_before:
        return False
    come = {event.member_id for event in step.events if event.event_type == "MEMBER_JOINED"}
    return not any(
        event.event_type == "MEMBER_RECONCILED"
        and event.member_id in come
        and event.details.get("previous_member_epoch") == "0"
        for event in step.events
    )


def _may_wait_for_topics(step: GenerationStart, event_type: str) -> bool:
    """Whether a new pattern may have come without raising the group epoch (maybeUpdateRegularExpressions): it does that
    only once it has topics. Then changed metadata of topics raised the epoch in the same operation.
    """
    previous = step.previous
    if step.row.group_type != GroupType.CONSUMER or not step.has_pattern or previous is None:
        return False
    details = (event.details for event in step.events if event.event_type == event_type)
    if any(it.get(TOPICS_BEFORE) != it.get(TOPICS_AFTER) for it in details):
        return False
    return not step.row.metadata_hash or step.row.metadata_hash != previous.metadata_hash


def _is_first(step: GenerationStart) -> bool:
    """Whether this incarnation of the group never had members before."""
    previous = step.previous
    return previous is None or (
        previous.generation == 0 and previous.group_type == GroupType.CLASSIC and not step.had_members
    )


def _by_metadata(step: GenerationStart, causes: Sequence[Claim]) -> Iterable[Claim]:
    """Groups other than classic: the coordinator itself notices changed topics, and records a new metadata hash."""
    if causes or step.previous is None:
        return
    if step.row.group_type == GroupType.SHARE and any(
        e.event_type == "SHARE_PARTITIONS_INITIALIZED" for e in step.since_previous
    ):
        yield Claim("PARTITIONS_CHANGED", "SHARE_PARTITIONS_INITIALIZED", CERTAIN)
    elif step.has_pattern and (by_pattern := _by_pattern(step)):
        yield from by_pattern
    elif step.row.metadata_hash != step.previous.metadata_hash:
        # Kafka before 4.1 wrote no hash: the first one after an upgrade differs, whatever the topics are
        is_unwritten = not (step.row.metadata_hash and step.previous.metadata_hash) and not (
            Since.METADATA_HASH.is_proven_by(step.previous_least_release)
            and Since.METADATA_HASH.is_proven_by(step.least_release)
        )
        has_owned = step.reassignment.total > step.reassignment.came
        # a returning static member may subscribe to other topics, which also changes the hash
        is_guess = (is_unwritten and has_owned) or step.has("STATIC_MEMBER_REPLACED") or step.may_have_others
        yield Claim("PARTITIONS_CHANGED", "METADATA_HASH", CERTAIN).weighed(is_guess, at_most=GUESS)
    elif step.row.group_type == GroupType.CONSUMER and not step.row.metadata_hash and not step.may_have_others:
        yield Claim("PARTITIONS_CHANGED", "NOTHING_ELSE_LEFT", LIKELY)


def _by_assignor(step: GenerationStart, causes: Sequence[Claim]) -> Iterable[Claim]:
    """Consumer groups: members prefer another server assignor. Kafka 4.4 bumps the epoch for that; earlier releases
    apply the change with the next bump.

    The release is known from the metadata log, or follows where nothing else can have bumped the epoch.
    """
    changes = [event for event in step.events if event.event_type == "PROTOCOL_CHANGED"]
    if step.row.group_type != GroupType.CONSUMER or not changes:
        return
    is_proven = Since.PREFERRED_ASSIGNOR_BUMPS_EPOCH.is_proven_by(step.least_release)
    has_tie = any(event.details.get("tie") for event in changes)
    if is_proven and not has_tie:
        yield Claim("PROTOCOL_CHANGED", PREFERRED_ASSIGNOR, CERTAIN)
        return
    if causes:
        # a release before 4.4 would have bumped the epoch without it
        yield Claim("PROTOCOL_CHANGED", PREFERRED_ASSIGNOR, GUESS)
        return
    is_sure = not step.has_pattern and not has_tie and not step.may_have_others
    has_hash = step.previous is not None and bool(step.previous.metadata_hash)
    yield Claim("PROTOCOL_CHANGED", PREFERRED_ASSIGNOR, CERTAIN).weighed(not (is_sure and has_hash))


def _by_pattern(step: GenerationStart) -> Sequence[Claim]:
    """Patterns are resolved to topics after the operation that brought them, and again from time to time. Two values
    of one pattern's record that have other topics show that these came or went, whoever has joined since."""
    new, changed = (step.value_of(step.events, step.row, name) for name in (PATTERNS_NEW, PATTERNS_CHANGED))
    if new is None and changed is None:
        # the log does not show to what patterns were resolved
        is_asked_for = any(e.event_type in {"MEMBER_JOINED", "SUBSCRIPTION_CHANGED"} for e in step.since_previous)
        new, changed = int(is_asked_for), 0 if is_asked_for else None
    causes = []
    if new:
        causes.append(Claim("SUBSCRIPTION_CHANGED", PATTERN_RESOLVED, LIKELY))
    if changed or changed is None:
        causes.append(Claim("PARTITIONS_CHANGED", "PATTERN_RESOLVED_AGAIN", CERTAIN if changed else LIKELY))
    return causes


def _by_assignment(step: GenerationStart) -> Iterable[Claim]:
    """Classic groups: no member joined, departed or changed its topics, and yet other partitions are assigned."""
    previous = step.previous
    if previous is None or previous.group_type != GroupType.CLASSIC or not step.had_members or not step.member_count:
        return
    if any(step.has(name) for name in ("MEMBER_JOINED", "SUBSCRIPTION_CHANGED")):
        return
    if step.leave_reasons:
        yield from _while_waited(step)
        return
    if step.row.protocol_type == CONNECT:
        yield from _by_configs(step)
        return
    if is_unread(step):
        return
    protocols, reassignment = {step.row.protocol_name, previous.protocol_name}, step.reassignment
    has_new = reassignment.came > reassignment.came_back
    if _is_metadata_late(step):
        return
    if protocols <= EAGER_PROTOCOLS and reassignment.came + reassignment.went > reassignment.left_out:
        # a leader that had known less of the topics would have assigned the same
        is_sure = bool(reassignment.grown_topics) and step.has_grown and not step.has_unread
        yield Claim("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", CERTAIN).weighed(not is_sure)
    elif protocols <= COOPERATIVE_PROTOCOLS and (has_new or (step.is_late and reassignment.came)):
        yield Claim("PARTITIONS_CHANGED", "NEW_PARTITIONS", LIKELY)
    elif protocols == {COOPERATIVE_STICKY} and reassignment.went and not reassignment.came and not step.has_revoked:
        # this assignor moves nothing between unchanged members; Kafka Streams does, when a task has caught up
        yield Claim("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", LIKELY)


def _weighed_by_replacement(step: GenerationStart, claim: Claim) -> Claim:
    """A static member that came back may have made the others join again, and does so where its session had expired.
    Then it was only then that the leader assigned what had changed before."""
    at_most = LIKELY if step.before_return <= {ALIVE} else GUESS
    return claim.weighed(step.has("STATIC_MEMBER_REPLACED"), at_most=at_most)


def _while_waited(step: GenerationStart) -> Iterable[Claim]:
    """What triggered a rebalance in which members did not join again.

    The partitions of those members go to others. If no member has such a partition, though others subscribe to its
    topic, the partition no longer exists: cooperative assignors leave out only what a staying member has to revoke
    first.
    """
    if not step.is_waited_out or is_unread(step):
        return
    if step.has_vanished or step.reassignment.came > step.reassignment.came_back:
        yield Claim("PARTITIONS_CHANGED", "ASSIGNED_PARTITIONS", LIKELY)


def _is_metadata_late(step: GenerationStart) -> bool:
    """Whether a leader now assigned partitions that the previous generation left out because the leader did not know
    the topic.

    These are partitions that lost their owner by the previous generation, or topics of which no member had any
    partition, if in the previous generation a member joined or changed its topics and may have brought them. Where
    nothing at all had been assigned, the topics may as well have been created since: there it is a guess.
    """
    reassignment, previous = step.reassignment, step.previous
    if previous is None or not step.is_soon or not reassignment.came or reassignment.went or reassignment.grown_topics:
        return False
    had_none = reassignment.total == reassignment.came
    known = EAGER_PROTOCOLS | COOPERATIVE_PROTOCOLS if had_none else EAGER_PROTOCOLS
    if not {step.row.protocol_name, previous.protocol_name} <= known or is_unread(step):
        return False
    if reassignment.came_back > reassignment.returned:
        return False
    is_asked_for = any(
        event.at == previous.valid_from and event.event_type in {"MEMBER_JOINED", "SUBSCRIPTION_CHANGED"}
        for event in step.since_previous
    )
    return is_asked_for or reassignment.came == reassignment.came_back


def _follows_conversion(step: GenerationStart, before: Sequence[Claim]) -> bool:
    """Whether the previous generation is the one written by a conversion to the classic protocol."""
    previous = step.previous
    return (
        previous is not None
        and previous.group_type == GroupType.CLASSIC
        and bool(before)
        and before[0].cause == CONVERTED
        and before[0].method != CONVERSION_FOLLOW_UP
    )


def _by_configs(step: GenerationStart) -> Iterable[Claim]:
    """Connect: the leader assigned by a newer config offset. That alone proves nothing: session keys are in that topic
    too.
    """
    before, now = step.before_and_now("config_offset")
    if before is None or now is None or now <= before:
        return
    reassignment = Reassignment(0, 0, 0) if is_unread(step) else step.reassignment
    if reassignment.came > reassignment.came_back:
        yield Claim("PARTITIONS_CHANGED", "CONNECTORS_CHANGED", LIKELY)
    elif not _is_follow_up(step) and not _is_delay_over(step):
        is_seen = bool(reassignment.went)
        method = "CONNECTORS_CHANGED" if is_seen else "CONFIGS_CHANGED"
        yield Claim("PARTITIONS_CHANGED", method, LIKELY if is_seen else GUESS)


def _is_follow_up(step: GenerationStart) -> bool:
    """Whether the previous generation causes another one at once."""
    if step.row.protocol_type == CONNECT:
        return any(step.before_and_now(name)[0] for name in ("revoked_count", "has_error"))
    if step.is_late:  # partitions also come back with a recreated topic
        return False
    if is_unread(step):
        return False
    if step.has_revoked and step.row.protocol_name in COOPERATIVE_PROTOCOLS:
        return True
    return _may_be_cooperative(step.row) and bool(step.reassignment.came_back)


def _is_delay_over(step: GenerationStart) -> bool:
    """Connect: whether the leader had waited for a worker for the delay that the previous generation announced."""
    delay_ms = step.before_and_now("delay_ms")[0]
    if step.row.protocol_type != CONNECT or step.previous is None or not delay_ms:
        return False
    began_ms = step.row.valid_from if step.row.current_state_at is None else step.row.current_state_at
    return -DELAY_SLACK_MS <= began_ms - step.previous.valid_from - delay_ms <= DELAY_REJOIN_MS


def _is_announced(step: GenerationStart) -> bool:
    """Kafka Streams: whether the previous generation announced that a member joins again then."""
    at_ms = step.before_and_now(NEXT_REBALANCE)[0]
    if at_ms is None or step.is_timeless:
        return False
    began_ms = step.row.valid_from if step.row.current_state_at is None else step.row.current_state_at
    return -DELAY_SLACK_MS <= began_ms - at_ms <= DELAY_REJOIN_MS


def _by_default(step: GenerationStart, before: Sequence[Claim]) -> Claim:
    if _is_announced(step):
        return Claim(PROBING_REBALANCE, "NEXT_REBALANCE_ANNOUNCED", LIKELY)
    method = _method_of_follow_up(step)
    if method is None or not before:
        return Claim("UNKNOWN", "NO_EVIDENCE", GUESS)
    main, row = before[0], step.row
    is_sure = row.protocol_type == CONNECT or row.protocol_name in COOPERATIVE_PROTOCOLS | EAGER_PROTOCOLS
    if method == METADATA_FOLLOW_UP:
        is_sure &= not step.reassignment.total == step.reassignment.came > step.reassignment.came_back
    return Claim(main.cause, method, LIKELY if is_sure and main.confidence != GUESS else GUESS)


def _method_of_follow_up(step: GenerationStart) -> str | None:
    """The method for a generation that only completes the previous one; None for others."""
    if _is_follow_up(step):
        return COOPERATIVE_FOLLOW_UP
    if _is_delay_over(step):
        return CONNECT_DELAY_OVER
    return METADATA_FOLLOW_UP if _is_metadata_late(step) else None


def _may_be_cooperative(row: GenerationRow) -> bool:
    """Whether an assignor may be cooperative. Unknown ones may be; those that assign everything in one round are
    not."""
    if row.protocol_name in COOPERATIVE_PROTOCOLS:
        return True
    return row.protocol_type == "consumer" and row.protocol_name not in EAGER_PROTOCOLS
