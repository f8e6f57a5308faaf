"""Scenario files: the content of a simulation as dataclasses, read from TOML and checked before a run.

A file has `name`, `start` (a time with an offset), `duration`, and the tables `[cluster]`, `[[topic]]`, `[[group]]` and
`[[fault]]`: each key is a field of the dataclass here. Its annotation has the reader of its value (`values`), unless
the type is enough, and the docstring there is its reference. Durations are strings such as "250ms", "45s", "5m", "2h"
or "1d"; the names of their fields end in `_ms` here but not in the file.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Annotated, Any, Final

from coordinator_core.bytes.kafka_versions import DEFAULT_VERSION, KafkaVersion
from coordinator_core.live.coordinator.config import GroupCoordinatorConfig
from simulator.simulation import values

STANDBY_REPLICAS_MAX: Final = 2
"""group.streams.max.standby.replicas."""
PARTITIONS_MAX: Final = 10_000
MEMBERS_MAX: Final = 5000
GROUPS_MAX: Final = 100_000
BROKERS_MAX: Final = 64
CLIENTS_MAX: Final = 500_000
ALL_PARTITIONS_MAX: Final = 200_000
STRIKES_MAX: Final = 1_000_000
"""Far above any sensible scenario: a typing error in a key should end with an error, not fill the memory."""


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """`[cluster]`: the brokers. The partition counts are for the internal topics."""

    brokers: Annotated[int, values.count(1, BROKERS_MAX)] = 3
    """The number of brokers; they lead the log partitions in turns."""
    racks: tuple[str, ...] = ()
    """broker.rack of each broker, in turns; without it, brokers have no rack."""
    consumer_offsets_partitions: Annotated[int, values.count(1, PARTITIONS_MAX)] = 5
    """offsets.topic.num.partitions: of `__consumer_offsets`."""
    share_group_state_partitions: Annotated[int, values.count(1, PARTITIONS_MAX)] = 5
    """share.coordinator.state.topic.num.partitions: of `__share_group_state`."""
    transaction_state_partitions: Annotated[int, values.count(1, PARTITIONS_MAX)] = 5
    """transaction.state.log.num.partitions: of `__transaction_state`."""
    new_cluster: bool = False
    """No client has used the cluster before: each internal topic is created when the first FindCoordinator needs it,
    which is answered with COORDINATOR_NOT_AVAILABLE. Otherwise the topics that the groups need exist from the start."""
    latency_ms: Annotated[tuple[int, int], values.latency] = (1, 5)
    """`latency = ["1ms", "5ms"]`: the one-way latency between client and broker; each client draws its own from this
    range.
    """
    append_linger_ms: Annotated[int | None, values.linger] = None
    """group.coordinator.append.linger.ms: how long a coordinator collects records for one batch; without it, requests
    that arrive at one time share a batch, as with Kafka's default of -1. Below 5 s, after which brokers time out a
    write."""
    segment_bytes: Annotated[int, values.count(10_000, 2**31 - 1)] = 104_857_600
    """The size at which a log partition begins a new segment."""
    compression: Annotated[str, values.one_of("none", "gzip", "snappy", "lz4", "zstd")] = "none"
    """offsets.topic.compression.codec: none, gzip, snappy, lz4 or zstd."""
    retention_check_interval_ms: Annotated[int, values.positive_duration] = 300_000
    """log.retention.check.interval.ms: how often brokers delete data beyond its retention."""
    transaction_version: Annotated[int, values.count(0, 2)] = 2
    """2: the producer epoch increases with every transaction (KIP-890)."""
    share_record_lock_duration_ms: Annotated[int, values.lock_duration] = 30_000
    """group.share.record.lock.duration.ms: how long a member may hold a record that it acquired."""
    share_delivery_count_limit: Annotated[int, values.count(2, 25)] = 5
    """group.share.delivery.count.limit: how often a record may be delivered; after that it is archived."""
    share_snapshot_update_records_per_snapshot: Annotated[int, values.count(0, 500)] = 500
    """share.coordinator.snapshot.update.records.per.snapshot."""
    share_sessions_max: Annotated[int, values.count(1, 2**31 - 1)] = 2000
    """group.share.max.share.sessions: the most share sessions of one broker."""
    share_fetch_read_ms: Annotated[int, values.within_request_timeout] = 0
    """How long a broker reads the log of one partition for a ShareFetch, to model slow disks. During that time the
    fetch has the fetch lock of the share partition (maybeAcquireFetchLock), and other fetches wait for it."""
    kafka_version: Annotated[KafkaVersion, values.release] = DEFAULT_VERSION
    """`kafka_version = "4.4"`: the release whose behaviour the coordinators have."""
    settings: Annotated[GroupCoordinatorConfig, values.settings] = field(default_factory=GroupCoordinatorConfig)
    """`[cluster.settings]`: settings of the group coordinator under Kafka's names, each in quotes."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """`[[topic]]`: a data topic. Producers write to it at a steady rate, in batches, evenly over its partitions."""

    name: Annotated[str, values.topic_name]
    """Its name in groups and faults."""
    partitions: Annotated[int, values.count(1, PARTITIONS_MAX)] = 1
    """Its number of partitions at the start; see also the fault `add_partitions`."""
    rate: float = 0.0
    """Records per second, all partitions together."""
    batch_records: Annotated[int, values.count(1, 1_000_000)] = 1
    """Records per batch; a batch is appended at once."""
    record_bytes: Annotated[int, values.count(1, 2**31 - 1)] = 100
    """The size of a record in the log, with its part of the batch: what the limits of a ShareFetch count."""
    transaction_records: Annotated[int, values.count(0, 1_000_000)] = 0
    """The number of records of one transaction in a partition; a marker of one offset follows them. 0: producers are
    not transactional. A multiple of `batch_records`."""
    abort_every: Annotated[int, values.count(0, 2**31 - 1)] = 0
    """Every n-th of these transactions is aborted; 0: none."""
    retention_ms: Annotated[int | None, values.positive_duration] = None
    """How long data is kept; without it, for ever."""
    poison_every: Annotated[int, values.count(0, 2**31 - 1)] = 0
    """Every n-th record of a partition is poison; 0: none. See also the fault `poison`."""
    dead_letters: bool = False
    """errors.deadletterqueue.group.enable: share groups may copy the records that they give up to this topic. Since
    Kafka 4.4.
    """


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """`[[group]]`: a group and its members, or `count` identical groups, called `name-0`, `name-1` and so on."""

    name: str
    """The group id."""
    topics: tuple[str, ...]
    """The topics to which its members subscribe."""
    member_topics: Annotated[tuple[tuple[str, ...], ...], values.lists_of_texts] = ()
    """`[["orders"], ["orders", "refunds"]]`: the topics to which each member subscribes, in turns; together they must
    be all of `topics`. Without it, every member subscribes to all of them."""
    protocol: Annotated[str, values.one_of("classic", "consumer", "share", "streams")] = "classic"
    """classic, consumer, share, or streams: each member of a streams group is a thread of a Kafka Streams application,
    and its topics are the source topics of the topology. Internal topics are created when the first member joins."""
    count: Annotated[int, values.count(1, GROUPS_MAX)] = 1
    """The number of identical groups."""
    members: Annotated[int, values.count(1, MEMBERS_MAX)] = 1
    """The number of members of each group."""
    assignors: tuple[str, ...] = ()
    """Classic: range, roundrobin, sticky, cooperative-sticky, the preferred one first; by default range and
    cooperative-sticky, as in Kafka. Consumer: one of the server-side assignors; by default the broker's own choice."""
    member_assignors: Annotated[tuple[tuple[str, ...], ...], values.lists_of_texts] = ()
    """`[["range", "roundrobin"], ["roundrobin"]]`: the assignors of each member, in turns. The group selects one that
    all support, by vote; a member that supports none of those is refused (INCONSISTENT_GROUP_PROTOCOL), and stops."""
    racks: tuple[str, ...] = ()
    """client.rack of each member, in turns. The client assignors range, sticky and cooperative-sticky prefer replicas
    on a member's rack if brokers have racks, too; the server-side assignors ignore it."""
    static: bool = False
    """Members are static: they have a group instance id, and return as the same members after a restart. In streams
    groups since Kafka 4.4.
    """
    instance_ids: tuple[str, ...] = ()
    """`["a", "b", "a"]`: with static, the group.instance.id of each member, in turns. Two members with one id are two
    processes that each fence the other one (FENCED_INSTANCE_ID)."""
    stateful: bool = True
    """The application has a state store; its changelog topic is `NAME-counts-changelog`."""
    repartition: bool = False
    """The application changes the key before it counts: a second subtopology reads `NAME-counts-repartition`."""
    threads: Annotated[int, values.count(1, MEMBERS_MAX)] = 1
    """num.stream.threads: so many members belong to one process, and share its process id."""
    client_tags: Annotated[tuple[tuple[tuple[str, str], ...], ...], values.client_tags] = ()
    """`[{ zone = "a" }, { zone = "b" }]`: client.tag.KEY of each member, in turns. Since Kafka 4.4 brokers require
    those that group.streams.rack.aware.assignment.tags names (MISSING_CLIENT_TAGS)."""
    standby_replicas: Annotated[int | None, values.count(0, STANDBY_REPLICAS_MAX)] = None
    """streams.num.standby.replicas of this group: copies of each stateful task; without it, the brokers' setting."""
    start_after_ms: Annotated[int, values.duration] = 0
    """The start of its first member, after the start of the scenario."""
    stagger_ms: Annotated[int, values.duration] = 1000
    """The time between the starts of two members."""
    session_timeout_ms: Annotated[int | None, values.config_duration] = None
    """session.timeout.ms of members of classic groups, 45 s by default. In the others it is the group's config
    (share.session.timeout.ms and so on); without it, the brokers' setting."""
    heartbeat_interval_ms: Annotated[int | None, values.config_duration] = None
    """heartbeat.interval.ms, 3 s by default; in the other groups as with session_timeout."""
    max_poll_interval_ms: Annotated[int, values.config_duration] = 300_000
    """max.poll.interval.ms: a member that does not poll for this long leaves."""
    member_max_poll_interval_ms: Annotated[tuple[int, ...], values.durations] = ()
    """`["30s", "5m"]`: max.poll.interval.ms of each member, in turns. In classic groups it is also the rebalance
    timeout: the group waits for the longest of all, and the JoinGroup of a member with a shorter one times out before
    that."""
    request_timeout_ms: Annotated[int, values.config_duration] = 30_000
    """request.timeout.ms: a client gives up a SyncGroup after this long without an answer, and a JoinGroup after its
    rebalance timeout and 5 s, if that is longer; then it joins again."""
    commit_interval_ms: Annotated[int, values.config_duration] = 5000
    """auto.commit.interval.ms; in transactional groups, the time between two transactions."""
    commits: Annotated[str, values.one_of("auto", "none", "transactional")] = "auto"
    """auto, none, or transactional: the producer commits the offsets in its transactions."""
    abort_every: Annotated[int, values.count(0, 2**31 - 1)] = 0
    """Transactional: every n-th transaction is aborted; 0: none."""
    rate: float = 1000.0
    """Records per second that one member can process."""
    on_poison: Annotated[str, values.one_of("skip", "stuck", "reject", "release", "time_out", "forget")] = "skip"
    """Classic and consumer: skip, or stuck (the partition makes no progress any more). Share: reject, release,
    time_out (the member works on it until its lock has expired) or forget (it polls on without having acknowledged it:
    its application stops with an IllegalStateException)."""
    acknowledge: Annotated[str, values.one_of("implicit", "explicit")] = "implicit"
    """Share: implicit or explicit."""
    max_poll_records: Annotated[int, values.count(1, 1_000_000)] = 500
    """max.poll.records: the most records that a poll returns."""
    acquire_mode: Annotated[str, values.one_of("batch_optimized", "record_limit")] = "batch_optimized"
    """share.acquire.mode: batch_optimized, which acquires whole batches of the log, so that a poll may return more, or
    record_limit."""
    fetch_max_wait_ms: Annotated[int, values.within_request_timeout] = 500
    """fetch.max.wait.ms: how long a ShareFetch is parked on the broker that finds less than `fetch_min_bytes`
    (DelayedShareFetch)."""
    fetch_min_bytes: Annotated[int, values.count(0, 2**31 - 1)] = 1
    """fetch.min.bytes: what a ShareFetch waits for."""
    fetch_max_bytes: Annotated[int, values.count(1, values.FETCH_BYTES_MAX)] = 52_428_800
    """fetch.max.bytes: each of the partitions that a ShareFetch reads has an equal part of it, and the first one at
    least a batch, however large. max.partition.fetch.bytes is in no ShareFetch."""
    poll_interval_ms: Annotated[int, values.config_duration] = 1000
    """Share: the time between two polls of a member."""
    release_every: Annotated[int, values.count(0, 2**31 - 1)] = 0
    """Share, explicit: every n-th record is released once; 0: none."""
    renew_every: Annotated[int, values.count(0, 2**31 - 1)] = 0
    """Every n-th record takes two polls: at the first the member renews its lock (RENEW), in a separate
    ShareAcknowledge; 0: none."""
    renew_acknowledge: bool = True
    """share.renew.acknowledge.enable: if false, the broker refuses RENEW."""
    max_record_locks: Annotated[int, values.count(*values.RECORD_LOCKS)] = 2000
    """share.partition.max.record.locks: the most records in flight of one share partition."""
    record_lock_duration_ms: Annotated[int | None, values.lock_duration] = None
    """share.record.lock.duration.ms of this group; without it, the brokers' setting."""
    delivery_count_limit: Annotated[int | None, values.count(2, 25)] = None
    """share.delivery.count.limit of this group; without it, the brokers' setting."""
    dead_letter_topic: Annotated[str | None, values.dead_letter_topic] = None
    """errors.deadletterqueue.topic.name: a topic without other records, to which brokers of Kafka 4.4 copy the records
    that the group gives up. They refuse this if the topic has no `dead_letters`."""
    isolation_level: Annotated[str, values.isolation_level] = "read_uncommitted"
    """share.isolation.level: read_uncommitted, or read_committed: only records up to the last stable offset, and none
    of aborted transactions."""
    offset_reset: Annotated[str | None, values.offset_reset] = None
    """Where a group begins that has no offset, or one that the log has no more (auto.offset.reset,
    share.auto.offset.reset): earliest, latest, or in share groups by_duration with an ISO 8601 duration, as
    "by_duration:PT5M". By default latest; in streams groups earliest, as Kafka Streams sets it."""

    def group_ids(self) -> tuple[str, ...]:
        return (self.name,) if self.count == 1 else tuple(f"{self.name}-{index}" for index in range(self.count))

    @property
    def session_ms(self) -> int:
        """`session_timeout`, or the default of the clients: so for members of classic groups."""
        return self.session_timeout_ms or 45_000

    @property
    def heartbeat_ms(self) -> int:
        """In the same way."""
        return self.heartbeat_interval_ms or 3000

    @property
    def auto_offset_reset(self) -> str:
        """`offset_reset`, or the default of the clients."""
        return self.offset_reset or ("earliest" if self.protocol == "streams" else "latest")


FAULT_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "crash": ("group",),
    "stop": ("group",),
    "slow_poll": ("group", "duration"),
    "pause": ("group", "duration"),
    "rolling_deploy": ("group", "duration"),
    "repeat": ("group", "duration"),
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
    "describe_share_offsets": ("group",),
    "delete_group": ("group",),
}
"""Fault -> the keys that it needs besides `kind` and `at`.

crash: the member dies without leaving the group, and a new process starts after `duration` (without it, none does).
stop: as with crash, but the member leaves the group properly. slow_poll: processing one poll takes `duration`. pause:
the whole process pauses, including its heartbeats. rolling_deploy: members are stopped and started again one after
another; each is away for `duration`. repeat: each request that the member sends to its coordinator or to a leader of
data during `duration` comes to the broker once more, `duration` later, over a connection that the member has closed by
then. poison: this record cannot be processed. broker_failover: the broker is down for
`duration`, and others lead its partitions. producer_stall: nothing is produced. delete_records: the log starts at
`offset` from now on. add_partitions: the topic has `partitions` from now on. create_topic: the topic is created, with a
new id and empty logs; until its first `create_topic` it does not exist, unless a `delete_topic` comes before.
delete_topic: the topic is deleted: coordinators delete its committed offsets, and members learn of it from their
heartbeats (consumer groups) or when the leader refreshes its metadata (classic groups). subscribe: the members
subscribe to `topics` from now on, until they are restarted. alter_config: an admin sets a config of the group to
`value`. alter_share_offsets: an admin sets the start offset of a share partition (AlterShareGroupOffsets).
delete_share_offsets: an admin deletes the group's offsets of a topic (DeleteShareGroupOffsets).
describe_share_offsets: an admin asks for the group's offsets (DescribeShareGroupOffsets). delete_group: an admin
deletes the group (DeleteGroups). A group with members refuses this, alter_share_offsets and delete_share_offsets; the
truth has the `error`.
"""

ALTERABLE: Final[Mapping[str, tuple[str, values.Reader]]] = {
    "share.record.lock.duration.ms": ("record_lock_duration_ms", values.count(*values.LOCK_DURATION_MS)),
    "share.delivery.count.limit": ("delivery_count_limit", values.count(2, 25)),
    "share.partition.max.record.locks": ("max_record_locks", values.count(*values.RECORD_LOCKS)),
    "share.renew.acknowledge.enable": ("renew_acknowledge", values.flag),
    "share.auto.offset.reset": ("offset_reset", values.offset_reset),
    "share.isolation.level": ("isolation_level", values.isolation_level),
    "share.session.timeout.ms": ("session_timeout_ms", values.count(1, values.CONFIG_MS_MAX)),
    "share.heartbeat.interval.ms": ("heartbeat_interval_ms", values.count(1, values.CONFIG_MS_MAX)),
}
"""Config of a share group -> its field, and the reader of the value that it gets during a scenario."""


def with_config(group: GroupSpec, name: str, value: Any) -> GroupSpec:
    """The group with one of its configs changed."""
    changed: dict[str, Any] = {ALTERABLE[name][0]: value}
    return replace(group, **changed)


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """`[[fault]]`: what goes wrong, and when. `FAULT_KEYS` has the keys that each kind needs."""

    kind: Annotated[str, values.one_of(*FAULT_KEYS)]
    """See the list below."""
    at_ms: Annotated[int, values.duration]
    """The time since the start."""
    every_ms: Annotated[int | None, values.positive_duration] = None
    """The time between repetitions; without it, the fault happens once. Not for alter_config, delete_records and
    poison, which change nothing the second time."""
    group: str | None = None
    """The name of a `[[group]]`: with `count`, the id of one of its groups, or the name of the table for all of
    them."""
    member: Annotated[int | None, values.count(0, MEMBERS_MAX)] = None
    """The index of the member, from 0; without it, all members."""
    topic: str | None = None
    """The name of a `[[topic]]`."""
    partition: Annotated[int | None, values.count(0, PARTITIONS_MAX)] = None
    """The number of a partition that this topic has at that time."""
    broker: Annotated[int | None, values.count(1, BROKERS_MAX)] = None
    """The id of the broker, from 1."""
    duration_ms: Annotated[int | None, values.positive_duration] = None
    """How long the fault lasts, or the time until recovery."""
    offset: Annotated[int | None, values.count(0, 2**62)] = None
    """An offset of this partition."""
    partitions: Annotated[int | None, values.count(1, PARTITIONS_MAX)] = None
    """The new number of partitions of the topic."""
    topics: tuple[str, ...] | None = None
    """The new subscription of the members."""
    config: Annotated[str | None, values.one_of(*ALTERABLE)] = None
    """The name of a group config, such as share.record.lock.duration.ms."""
    value: Annotated[int | str | None, values.config_value] = None
    """The new value of the config, as Kafka has it: times are numbers of ms."""


FAULT_KEYS_MORE: Final[Mapping[str, tuple[str, ...]]] = {
    "crash": ("member", "duration"),
    "stop": ("member", "duration"),
    "slow_poll": ("member",),
    "pause": ("member",),
    "repeat": ("member",),
    "subscribe": ("member",),
    "producer_stall": ("partition",),
    "create_topic": ("partitions",),
}
"""Fault -> the optional keys; any other key would have no effect."""

ONCE: Final = frozenset({"alter_config", "delete_records", "poison"})
"""Faults that change nothing the second time: `every` would have no effect."""


def occurrences(fault: FaultSpec, duration_ms: int) -> Iterator[int]:
    """The times of a fault, since the start."""
    step_ms = fault.every_ms or duration_ms
    return iter(range(fault.at_ms, duration_ms, step_ms))


def topics_made_later(faults: Iterable[FaultSpec]) -> frozenset[str]:
    """The topics that do not exist at the start: their first fault creates them."""
    first: dict[str, FaultSpec] = {}
    for fault in sorted(faults, key=attrgetter("at_ms")):
        if fault.kind in {"create_topic", "delete_topic"} and fault.topic is not None:
            first.setdefault(fault.topic, fault)
    return frozenset(topic for topic, fault in first.items() if fault.kind == "create_topic")


@dataclass(frozen=True, slots=True)
class Use:
    """The groups in which a key has an effect."""

    protocols: tuple[str, ...]
    why: str
    """Why it has no effect in other groups, as the end of a sentence."""
    needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Another key -> its values with which this one has an effect; `acknowledge` counts in share groups only."""


def coordinator_configs(group: GroupSpec, settings: GroupCoordinatorConfig) -> dict[str, int]:
    """The configs of a group by which its coordinator goes -> the group's value, or else the brokers'."""
    own = {"session.timeout.ms": group.session_timeout_ms, "heartbeat.interval.ms": group.heartbeat_interval_ms}
    if group.protocol == "streams":
        own["num.standby.replicas"] = group.standby_replicas
    named = {f"{group.protocol}.{name}": value for name, value in own.items()} if group.protocol != "classic" else {}
    return {
        name: getattr(settings, f"group.{name}".replace(".", "_")) if value is None else value
        for name, value in named.items()
    }


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
    "instance_ids": Use(COMMITTING, "whose members have no group.instance.id"),
    "request_timeout": Use(("classic",), "whose members wait for no other members"),
    "commits": Use(COMMITTING, "which commits no offsets"),
    "commit_interval": Use(COMMITTING, "which commits no offsets", {"commits": ("auto", "transactional")}),
    "abort_every": Use(COMMITTING, "which commits no offsets", {"commits": ("transactional",)}),
    "rate": Use(COMMITTING, "whose members handle what a poll gives (max_poll_records, poll_interval)"),
    "on_poison": Use((*COMMITTING, "share"), "", {"acknowledge": ("explicit",)}),
    "acknowledge": Use(SHARE_ONLY, "which acknowledges no records"),
    "fetch_max_wait": Use(SHARE_ONLY, "which has records as soon as they are in the log"),
    "fetch_min_bytes": Use(SHARE_ONLY, "which has records as soon as they are in the log"),
    "fetch_max_bytes": Use(SHARE_ONLY, "whose members read at a rate (rate)"),
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
"""Key of `[[group]]` -> where it has an effect; the other keys have one in every group."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A whole scenario file."""

    name: str
    """The name of the scenario, in the truth as well."""
    start_ms: Annotated[int, values.time]
    """The time on the clock of its brokers at its start, from 1970 on."""
    duration_ms: Annotated[int, values.positive_duration]
    """The length of the scenario: ten years at most."""
    seed: Annotated[int, values.count(0, 2**63 - 1)] = 0
    """The seed of all randomness: one file with one seed always gives the same bytes. `--seed` takes precedence."""
    about: Annotated[str, values.any_text] = ""
    """A description for readers."""
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
        """The time at which the clock stops."""
        return self.start_ms + self.duration_ms


def field_of(kind: type, key: str) -> str:
    """The field of a key."""
    return next(it.name for it in fields(kind) if key_of(kind, it.name) == key)


def key_of(kind: type, name: str) -> str:
    """The key of a field: durations have no unit in their key, lists of tables have the singular."""
    if kind is Scenario and name in {"topics", "groups", "faults"}:
        return name[:-1]
    return name.removesuffix("_ms")
