"""Scenario files: what is simulated, as dataclasses, read from TOML and checked before anything runs.

A file has `name`, `start` (a time with an offset), `duration`, and the tables `[cluster]`, `[[topic]]`, `[[group]]` and
`[[fault]]`: each key is a field of the dataclass here, and the docstring there is its reference. Durations are texts as
"250ms", "45s", "5m", "2h" or "1d", and fields of durations end in `_ms` here but not in the file.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any, Final

from coordinator_core.coordinator.config import GroupCoordinatorConfig
from coordinator_core.kafka_versions import DEFAULT_VERSION, KafkaVersion

UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)

LOCK_DURATION_MS: Final = (1000, 3_600_000)
"""group.share.min.record.lock.duration.ms may be 1 s, and group.share.max.record.lock.duration.ms an hour."""
RECORD_LOCKS: Final = (100, 10_000)
"""share.partition.max.record.locks: from group.share.min.partition.max.record.locks on, up to the most that brokers may
allow."""
BY_DURATION: Final = re.compile(
    r"by_duration:P(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})(?:\.([0-9]{1,3}))?S)?)?",
    re.ASCII,
)
CLIENT_TAGS_MAX: Final = 5
TAG_KEY_MAX: Final = 20
TAG_VALUE_MAX: Final = 30
"""What Kafka Streams takes of client tags (StreamsConfig.MAX_RACK_AWARE_ASSIGNMENT_TAG_...)."""
STANDBY_REPLICAS_MAX: Final = 2
"""group.streams.max.standby.replicas."""
PARTITIONS_MAX: Final = 10_000
MEMBERS_MAX: Final = 5000
GROUPS_MAX: Final = 100_000
DEAD_LETTER_PREFIX: Final = "dlq."
"""errors.deadletterqueue.topic.name.prefix of the brokers."""
BROKERS_MAX: Final = 64
CLIENTS_MAX: Final = 500_000
ALL_PARTITIONS_MAX: Final = 200_000
STRIKES_MAX: Final = 1_000_000
"""Far above any sensible scenario: a slip of a key, not the memory, should end a run."""
DURATION_MS_MAX: Final = 3650 * UNIT_MS["d"]
"""Ten years: the clock of a longer scenario would reach times that no calendar has."""
CONFIG_MS_MAX: Final = 2**31 - 1
"""Durations of clients and brokers that Kafka keeps in 32 bits."""
LINGER_MS_MAX: Final = 4999
"""offsets.commit.timeout.ms: a write that waits 5 s is given up, and with a longer linger every write would."""
TEXT_BYTES_MAX: Final = 32_000
"""Lengths of texts in records have 16 bits; names of members and transactional ids are a little longer than their
group's."""
TIME_MS: Final = (0, 253_402_300_799_999)
"""1970-01-01T00:00:00Z to the end of the year 9999: Kafka has no times below 0, calendars none beyond."""


TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


def reset_duration_ms(text: str) -> int | None:
    """The duration of `by_duration:...`, None for any other text."""
    match = BY_DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole_s = int(days or 0) * 86_400 + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return whole_s * 1000 + int((fraction or "").ljust(3, "0") or 0)


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """`[cluster]`: the brokers. The partition counts are those of the internal topics."""

    brokers: int = 3
    """How many; they lead the log partitions in turns."""
    racks: tuple[str, ...] = ()
    """broker.rack of each broker, in turns; without it, they have none."""
    consumer_offsets_partitions: int = 5
    """offsets.topic.num.partitions: of `__consumer_offsets`."""
    share_group_state_partitions: int = 5
    """share.coordinator.state.topic.num.partitions: of `__share_group_state`."""
    transaction_state_partitions: int = 5
    """transaction.state.log.num.partitions: of `__transaction_state`."""
    new_cluster: bool = False
    """Nobody has used the cluster before: each internal topic is made when the first FindCoordinator needs it, which is
    answered COORDINATOR_NOT_AVAILABLE. Else the topics that the groups need are there."""
    latency_ms: tuple[int, int] = (1, 5)
    """`latency = ["1ms", "5ms"]`: one way between client and broker; each client draws its own from this range."""
    append_linger_ms: int | None = None
    """group.coordinator.append.linger.ms: how long a coordinator gathers records for one batch; without it, what comes
    at one time goes together, as with Kafka's default of -1. Below 5 s: then brokers give a write up."""
    segment_bytes: int = 104_857_600
    """Size at which a log partition begins a new segment."""
    compression: str = "none"
    """offsets.topic.compression.codec: none, gzip, snappy, lz4 or zstd."""
    retention_check_interval_ms: int = 300_000
    """log.retention.check.interval.ms: how often data beyond its retention is deleted."""
    transaction_version: int = 2
    """2: the producer epoch goes up with every transaction (KIP-890)."""
    share_record_lock_duration_ms: int = 30_000
    """group.share.record.lock.duration.ms: how long a member may hold a record that it acquired."""
    share_delivery_count_limit: int = 5
    """group.share.delivery.count.limit: how often a record is delivered before it is given up."""
    share_snapshot_update_records_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot."""
    share_sessions_max: int = 2000
    """group.share.max.share.sessions: how many share sessions one broker has at most."""
    share_fetch_read_ms: int = 0
    """How long a broker reads the log of one partition for a ShareFetch, as from slow disks. Meanwhile that fetch has
    the fetch lock of the share partition (maybeAcquireFetchLock), and another one waits for it."""
    kafka_version: KafkaVersion = DEFAULT_VERSION
    """`kafka_version = "4.4"`: the release whose rules the coordinators follow."""
    settings: GroupCoordinatorConfig = field(default_factory=GroupCoordinatorConfig)
    """`[cluster.settings]`: settings of the group coordinator by Kafka's names, each in quotes."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """`[[topic]]`: a data topic. Producers fill it at a steady rate, in batches, evenly over its partitions."""

    name: str
    """As groups and faults call it."""
    partitions: int = 1
    """How many it begins with; see also the fault `add_partitions`."""
    rate: float = 0.0
    """Records a second, all partitions together."""
    batch_records: int = 1
    """Records of one batch: they come at once."""
    transaction_records: int = 0
    """Producers are transactional: so many records of a partition are a transaction, which a marker of one offset
    follows; 0: they are not. A multiple of `batch_records`."""
    abort_every: int = 0
    """Every so-many-th of these transactions is aborted; 0: none."""
    retention_ms: int | None = None
    """How long data is kept; none: for ever."""
    poison_every: int = 0
    """Every so-many-th record of a partition is poison; 0: none. See also the fault `poison`."""
    dead_letters: bool = False
    """errors.deadletterqueue.group.enable: share groups may copy there what they give up. Of Kafka 4.4."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`[[group]]`: a group and its members, or `count` groups alike, called `name-0`, `name-1` ..."""

    name: str
    """Its group id."""
    topics: tuple[str, ...]
    """What its members subscribe to."""
    member_topics: tuple[tuple[str, ...], ...] = ()
    """`[["orders"], ["orders", "refunds"]]`: what each member subscribes to, in turns, together all of `topics`.
    Without it, every member subscribes to all of them."""
    protocol: str = "classic"
    """classic, consumer, share, or streams: each member is then a thread of a Kafka Streams application, and its topics
    are what the topology reads. Internal topics are made when the first member comes."""
    count: int = 1
    """How many groups alike."""
    members: int = 1
    """How many members each group has."""
    assignors: tuple[str, ...] = ()
    """Classic: range, roundrobin, sticky, cooperative-sticky, the favourite first; by default range and
    cooperative-sticky, as in Kafka. Consumer: one of the server's; by default whatever the server prefers."""
    member_assignors: tuple[tuple[str, ...], ...] = ()
    """`[["range", "roundrobin"], ["roundrobin"]]`: the assignors of each member, in turns. The group takes one that all
    support, by vote; a member that supports none of those is refused (INCONSISTENT_GROUP_PROTOCOL), and ends."""
    racks: tuple[str, ...] = ()
    """client.rack of each member, in turns. The client assignors range, sticky and cooperative-sticky prefer replicas
    on a member's rack where brokers have racks, too; the assignors of brokers ignore it."""
    static: bool = False
    """Members have a group instance id and come back as who they were. In streams groups since Kafka 4.4."""
    stateful: bool = True
    """The application has a state store; its changelog topic is `NAME-counts-changelog`."""
    repartition: bool = False
    """The application takes another key before it counts: a second subtopology reads `NAME-counts-repartition`."""
    threads: int = 1
    """num.stream.threads: so many members are of one process, and have one process id."""
    client_tags: tuple[tuple[tuple[str, str], ...], ...] = ()
    """`[{ zone = "a" }, { zone = "b" }]`: client.tag.KEY of each member, in turns. Since Kafka 4.4 brokers ask for
    those that group.streams.rack.aware.assignment.tags names (MISSING_CLIENT_TAGS)."""
    standby_replicas: int | None = None
    """streams.num.standby.replicas of this group: copies of each stateful task; without it, the brokers'."""
    start_after_ms: int = 0
    """When its first member starts."""
    stagger_ms: int = 1000
    """Members start one after another, so far apart."""
    session_timeout_ms: int = 45_000
    """Classic groups; the others go by the broker's."""
    heartbeat_interval_ms: int = 3000
    """heartbeat.interval.ms."""
    max_poll_interval_ms: int = 300_000
    """max.poll.interval.ms: a member that does not poll for so long leaves."""
    member_max_poll_interval_ms: tuple[int, ...] = ()
    """`["30s", "5m"]`: max.poll.interval.ms of each member, in turns. In classic groups it is also the rebalance
    time-out: the group waits for the longest of all, and JoinGroup of a member with a shorter one times out before."""
    request_timeout_ms: int = 30_000
    """request.timeout.ms: a client gives up a SyncGroup after so long without an answer, a JoinGroup after its
    rebalance time-out and 5 s, if that is longer; and it joins again."""
    commit_interval_ms: int = 5000
    """auto.commit.interval.ms; for transactional groups the time between two transactions."""
    commits: str = "auto"
    """auto, none, or transactional: offsets are committed within the producer's transactions."""
    abort_every: int = 0
    """Transactional: every so-many-th transaction is aborted; 0: none."""
    rate: float = 1000.0
    """Records a second which one member handles."""
    on_poison: str = "skip"
    """Classic and consumer: skip, or stuck (the partition makes no progress any more). Share: reject, release or
    time_out (the member lets the lock run out)."""
    acknowledge: str = "implicit"
    """Share: implicit or explicit."""
    max_poll_records: int = 500
    """max.poll.records: how many records a poll gives at most."""
    acquire_mode: str = "batch_optimized"
    """share.acquire.mode: batch_optimized, where batches of the log are not torn and a poll may give more, or
    record_limit."""
    fetch_max_wait_ms: int = 500
    """fetch.max.wait.ms: how long a ShareFetch that finds nothing is parked on the broker (DelayedShareFetch)."""
    poll_interval_ms: int = 1000
    """Share: time between two polls of a member."""
    release_every: int = 0
    """Share, explicit: every so-many-th record is released once; 0: none."""
    renew_every: int = 0
    """Every so-many-th record takes two polls: at the first the member renews its lock (RENEW), in a ShareAcknowledge
    of its own; 0: none."""
    renew_acknowledge: bool = True
    """share.renew.acknowledge.enable: without it the broker refuses RENEW."""
    max_record_locks: int = 2000
    """share.partition.max.record.locks: records in flight of one share partition."""
    record_lock_duration_ms: int | None = None
    """share.record.lock.duration.ms of this group; without it, the brokers'."""
    delivery_count_limit: int | None = None
    """share.delivery.count.limit of this group; without it, the brokers'."""
    dead_letter_topic: str | None = None
    """errors.deadletterqueue.topic.name: a topic without records of its own, where brokers of Kafka 4.4 copy what the
    group gives up. They refuse to where that topic has no `dead_letters`."""
    isolation_level: str = "read_uncommitted"
    """share.isolation.level: read_uncommitted, or read_committed: records up to the last stable offset, and none of
    aborted transactions."""
    offset_reset: str = "earliest"
    """Where a group without an offset begins (auto.offset.reset, share.auto.offset.reset): earliest, latest, or in
    share groups by_duration with an ISO 8601 duration, as "by_duration:PT5M"."""

    def group_ids(self) -> tuple[str, ...]:
        """The groups of this table."""
        return (self.name,) if self.count == 1 else tuple(f"{self.name}-{index}" for index in range(self.count))


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """`[[fault]]`: what goes wrong, and when. Which keys a kind needs says `FAULT_KEYS`."""

    kind: str
    """See the list below."""
    at_ms: int
    """Time since the start."""
    every_ms: int | None = None
    """Again and again, so far apart. Not for alter_config, delete_records and poison, which change nothing the
    second time."""
    group: str | None = None
    """Name of a `[[group]]`: with `count`, of one of its groups, or of the table for all of them."""
    member: int | None = None
    """Index of the member, from 0; none: all of them."""
    topic: str | None = None
    """Name of a `[[topic]]`."""
    partition: int | None = None
    """Of this topic, as it is at that time."""
    broker: int | None = None
    """From 1."""
    duration_ms: int | None = None
    """How long it takes, or how long it is until all is well again."""
    offset: int | None = None
    """Of this partition."""
    partitions: int | None = None
    """How many the topic has then."""
    topics: tuple[str, ...] | None = None
    """What the members subscribe to then."""
    config: str | None = None
    """Name of a group's config, as share.record.lock.duration.ms."""
    value: int | None = None
    """Of the config."""


FAULT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "crash": ("group",),
    "stop": ("group",),
    "slow_poll": ("group", "duration"),
    "pause": ("group", "duration"),
    "rolling_deploy": ("group", "duration"),
    "poison": ("topic", "partition", "offset"),
    "broker_failover": ("broker", "duration"),
    "producer_stall": ("topic", "duration"),
    "delete_records": ("topic", "partition", "offset"),
    "add_partitions": ("topic", "partitions"),
    "create_topic": ("topic",),
    "delete_topic": ("topic",),
    "subscribe": ("group", "topics"),
    "alter_config": ("group", "config", "value"),
    "alter_share_offsets": ("group", "topic", "partition", "offset"),
    "delete_share_offsets": ("group", "topic"),
    "delete_group": ("group",),
}
"""Fault -> the keys which it needs besides `kind` and `at`.

crash: the member dies without a word, and a new process starts after `duration` (without it, none does). stop: the
same, but it leaves as a good client does. slow_poll: processing one poll takes `duration`. pause: the whole process
pauses, heartbeats too. rolling_deploy: members are stopped and started again one after another; each is away for
`duration`. poison: this record cannot be handled. broker_failover: the broker is gone for `duration`, others lead its
partitions. producer_stall: nothing is produced. delete_records: the log starts at `offset` from now on. add_partitions:
the topic has `partitions` from now on. create_topic: the topic is made, with a new id and empty logs; until its first
`create_topic` it does not exist, unless a `delete_topic` comes before. delete_topic: the topic is deleted: coordinators
delete its committed offsets, and members find out by their heartbeats (consumer groups) or as the leader refreshes its
metadata (classic groups). subscribe: the members subscribe to `topics` from now on, until they are started
again. alter_config: an admin sets a config of the group to `value`. alter_share_offsets: an admin sets the start offset
of a share partition (AlterShareGroupOffsets). delete_share_offsets: the group forgets a topic
(DeleteShareGroupOffsets). delete_group: the group goes (DeleteGroups). A group with members refuses these three; the
truth has the `error`.
"""


FAULT_KEYS_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "crash": ("member", "duration"),
    "stop": ("member", "duration"),
    "slow_poll": ("member",),
    "pause": ("member",),
    "subscribe": ("member",),
    "producer_stall": ("partition",),
    "create_topic": ("partitions",),
}
"""Fault -> the keys which it may have besides; any other key would do nothing."""

ONCE: Final = frozenset({"alter_config", "delete_records", "poison"})
"""Faults that change nothing the second time: `every` would do nothing."""


def occurrences(fault: FaultSpec, duration_ms: int) -> Iterator[int]:
    """When a fault strikes, as times since the start."""
    step_ms = fault.every_ms or duration_ms
    return iter(range(fault.at_ms, duration_ms, step_ms))


def topics_made_later(faults: Iterable[FaultSpec]) -> frozenset[str]:
    """Topics that do not exist at the start: the first that happens to them is that they are made."""
    first: dict[str, FaultSpec] = {}
    for fault in sorted(faults, key=attrgetter("at_ms")):
        if fault.kind in {"create_topic", "delete_topic"} and fault.topic is not None:
            first.setdefault(fault.topic, fault)
    return frozenset(topic for topic, fault in first.items() if fault.kind == "create_topic")


@dataclass(frozen=True, slots=True)
class Use:
    """Where a key of a group does something."""

    protocols: tuple[str, ...]
    why: str
    """Why not elsewhere, as the end of a sentence."""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Another key -> its values with which this one does something; `acknowledge` counts in share groups only."""


def group_settings(groups: Iterable[GroupSpec]) -> dict[str, dict[str, int]]:
    """Group id -> settings of the group coordinator that the group has of its own, as `Context.group_setting` names
    them."""
    return {
        group_id: {"streams_num_standby_replicas": group.standby_replicas}
        for group in groups
        if group.standby_replicas is not None
        for group_id in group.group_ids()
    }


ALTERABLE: Final[Mapping[str, tuple[str, int, int]]] = {
    "share.record.lock.duration.ms": ("record_lock_duration_ms", *LOCK_DURATION_MS),
    "share.delivery.count.limit": ("delivery_count_limit", 2, 25),
    "share.partition.max.record.locks": ("max_record_locks", *RECORD_LOCKS),
}
"""Config of a share group that may change while a scenario runs -> its field, and from what to what it may be."""


def with_config(group: GroupSpec, name: str, value: int) -> GroupSpec:
    """The group with one of its configs changed."""
    changed: dict[str, Any] = {ALTERABLE[name][0]: value}
    return replace(group, **changed)


COMMITTING: Final = ("classic", "consumer", "streams")
ASSIGNING: Final = ("classic", "consumer")
STREAMS_ONLY: Final = ("streams",)
SHARE_ONLY: Final = ("share",)
GROUP_KEYS: Final[Mapping[str, Use]] = {
    "assignors": Use(ASSIGNING, "whose partitions the broker assigns by its one assignor"),
    "member_topics": Use(("classic", "consumer", "share"), "whose members all run one topology"),
    "stateful": Use(STREAMS_ONLY, "which has no state stores"),
    "repartition": Use(STREAMS_ONLY, "which has no topology"),
    "client_tags": Use(STREAMS_ONLY, "whose members have no tags"),
    "threads": Use(STREAMS_ONLY, "each of whose members is a process"),
    "standby_replicas": Use(STREAMS_ONLY, "which has no tasks"),
    "member_assignors": Use(("classic",), "whose members take the broker's assignor"),
    "acquire_mode": Use(SHARE_ONLY, "which acquires no records"),
    "static": Use(COMMITTING, "whose members have no group.instance.id"),
    "request_timeout": Use(("classic",), "whose members wait for no other members"),
    "session_timeout": Use(("classic",), "where brokers set it (group.consumer.session.timeout.ms, group.share...)"),
    "heartbeat_interval": Use(
        ("classic",), "where brokers set it (group.consumer.heartbeat.interval.ms, group.share...)"
    ),
    "commits": Use(COMMITTING, "which commits no offsets"),
    "commit_interval": Use(COMMITTING, "which commits no offsets", {"commits": ("auto", "transactional")}),
    "abort_every": Use(COMMITTING, "which commits no offsets", {"commits": ("transactional",)}),
    "rate": Use(COMMITTING, "whose members handle what a poll gives (max_poll_records, poll_interval)"),
    "on_poison": Use((*COMMITTING, "share"), "", {"acknowledge": ("explicit",)}),
    "acknowledge": Use(SHARE_ONLY, "which acknowledges no records"),
    "fetch_max_wait": Use(SHARE_ONLY, "which has records as soon as they are in the log"),
    "max_poll_records": Use(SHARE_ONLY, "whose members read at a rate (rate)"),
    "release_every": Use(SHARE_ONLY, "which acknowledges no records", {"acknowledge": ("explicit",)}),
    "renew_every": Use(SHARE_ONLY, "which acknowledges no records", {"acknowledge": ("explicit",)}),
    "renew_acknowledge": Use(SHARE_ONLY, "which acknowledges no records"),
    "isolation_level": Use(SHARE_ONLY, "whose consumers read all records here"),
    "max_record_locks": Use(SHARE_ONLY, "which has no locks of records"),
    "record_lock_duration": Use(SHARE_ONLY, "which has no locks of records"),
    "delivery_count_limit": Use(SHARE_ONLY, "which counts no deliveries"),
    "dead_letter_topic": Use(SHARE_ONLY, "which gives no records up"),
}
"""Key of `[[group]]` -> where it does something; the other keys do in every group."""

LEAST: Final[Mapping[str, int]] = {
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_regex_refresh_interval_ms": 10_000,
    "group_initial_rebalance_delay_ms": 0,
    "group_share_assignment_interval_ms": 0,
    "group_streams_acceptable_recovery_lag": 0,
    "group_streams_assignment_interval_ms": 0,
    "group_streams_initial_rebalance_delay_ms": 0,
    "group_streams_num_standby_replicas": 0,
    "group_streams_num_warmup_replicas": 0,
    "offset_metadata_max_bytes": 0,
}
"""Setting of the group coordinator -> the least that it may be; of every other number that is 1."""
MOST: Final[Mapping[str, int]] = {"group_share_max_size": 1000}
"""Setting -> the most that it may be; of every other number that is what fits into 31 bits."""
SERVER_ASSIGNORS: Final = ("uniform", "range")
MIGRATION_POLICIES: Final = ("disabled", "downgrade", "upgrade", "bidirectional")
BELOW: Final = (
    ("group_consumer_heartbeat_interval_ms", "group_consumer_session_timeout_ms"),
    ("group_share_heartbeat_interval_ms", "group_share_session_timeout_ms"),
    ("group_streams_heartbeat_interval_ms", "group_streams_session_timeout_ms"),
    ("group_min_session_timeout_ms", "group_max_session_timeout_ms"),
)
"""Pairs of settings of which the first must be below the second (GroupCoordinatorConfig of Kafka)."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole scenario file."""

    name: str
    """What the truth calls it."""
    start_ms: int
    """The time on the clock of its brokers when it begins, from 1970 on."""
    duration_ms: int
    """How long it lasts: ten years at most."""
    seed: int = 0
    """Of all randomness: one file and one seed give the same bytes, always. `--seed` goes before it."""
    about: str = ""
    """For people."""
    cluster: ClusterSpec = field(default_factory=ClusterSpec)
    """See below."""
    topics: tuple[TopicSpec, ...] = ()
    """See below."""
    groups: tuple[GroupSpec, ...] = ()
    """See below."""
    faults: tuple[FaultSpec, ...] = ()
    """See below."""

    @property
    def end_ms(self) -> int:
        """When the clock stops."""
        return self.start_ms + self.duration_ms


# --- reading ---
