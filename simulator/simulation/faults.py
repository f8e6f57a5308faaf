"""The scenario's faults as scheduled events: their kind, time, targets and duration."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.share.messages import (
    AlterOffsetsPartition,
    AlterOffsetsTopic,
    AlterShareGroupOffsetsRequest,
    DeleteOffsetsTopic,
    DeleteShareGroupOffsetsRequest,
)
from coordinator_core.live.share.service import (
    Flow,
    alter_offsets,
    delete_groups,
    delete_offsets,
    describe_offsets,
)
from simulator.simulation.clients.machine import SlowPoll, Subscribe, TopicsChanged
from simulator.simulation.clock import EventLoop
from simulator.simulation.cluster import DETECTION_MS, Cluster
from simulator.simulation.exchange import error_of
from simulator.simulation.heartbeats import Heartbeats
from simulator.simulation.other_logs import topic_configs
from simulator.simulation.process import Process
from simulator.simulation.scenario import FAULT_KEYS, FaultSpec, GroupSpec, Scenario, field_of, occurrences
from simulator.simulation.share_leader import ShareLeaders
from simulator.simulation.topics import Topics
from simulator.simulation.truth import Truth

METADATA_AGE_MS: Final = 5000
"""Clients learn of changed topics at a random time within this: metadata.max.age.ms, shorter than Kafka's default."""


class Stage(Protocol):
    """What faults happen to: the running simulation."""

    scenario: Scenario
    loop: EventLoop
    truth: Truth
    topics: Topics
    cluster: Cluster
    heartbeats: Heartbeats
    share_leaders: ShareLeaders
    members: dict[str, list[Process]]


class Faults:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._loop = stage.loop

    def schedule(self) -> None:
        scenario = self._stage.scenario
        for spec in scenario.faults:
            for at_ms in occurrences(spec, scenario.duration_ms):
                self._loop.at(scenario.start_ms + at_ms, self._strike, spec)

    def _strike(self, spec: FaultSpec) -> None:
        """Let it happen, with the values of the keys that its kind needs (`FAULT_KEYS`), in their order."""
        needed = [getattr(spec, field_of(FaultSpec, key)) for key in FAULT_KEYS[spec.kind]]
        STRIKES[spec.kind](self, spec, *needed)

    def _record(self, spec: FaultSpec, **facts: Any) -> int:
        until_ms = None if spec.duration_ms is None else self._loop.now_ms + spec.duration_ms
        return self._stage.truth.record(
            "faults", self._loop.now_ms, {"fault": spec.kind, **facts, "until_ms": until_ms}
        )

    def _targets(self, spec: FaultSpec) -> Iterator[list[Process]]:
        for group_id in self._group_ids(spec):
            members = self._stage.members[group_id]
            yield members if spec.member is None else [members[spec.member]]

    def _each(self, spec: FaultSpec, strike: Callable[[Process], None], **facts: Any) -> None:
        for members in self._targets(spec):
            for process in members:
                process.fault = self._record(spec, group=process.group_id, client_id=process.client_id, **facts)
                strike(process)

    def _later(self, spec: FaultSpec, action: Callable[..., None], *arguments: Any) -> None:
        if spec.duration_ms is not None:
            self._loop.after(spec.duration_ms, action, *arguments)

    # --- members ---

    def _for_a_while(self, spec: FaultSpec, strike: Callable[[Process], None], mend: Callable[[Process], None]) -> None:
        def struck(process: Process) -> None:
            strike(process)
            self._later(spec, mend, process)

        self._each(spec, struck)

    def _slow_poll(self, spec: FaultSpec, group: str, duration_ms: int) -> None:
        self._each(spec, lambda process: process.deliver(SlowPoll(duration_ms)))

    def _repeat(self, spec: FaultSpec, group: str, duration_ms: int) -> None:
        def strike(process: Process) -> None:
            self._stage.heartbeats.wake(process.group_id)
            process.repeats_after_ms, process.repeats_until_ms = duration_ms, self._loop.now_ms + duration_ms

        self._each(spec, strike)

    def _subscribe(self, spec: FaultSpec, group: str, topics: tuple[str, ...]) -> None:
        def strike(process: Process) -> None:
            self._stage.heartbeats.wake(process.group_id)
            process.deliver(Subscribe(topics))

        self._each(spec, strike, topics=list(topics))

    def _rolling_deploy(self, spec: FaultSpec, *_: Any) -> None:
        for members in self._targets(spec):
            self._deploy(spec, members, 0)

    def _deploy(self, spec: FaultSpec, members: list[Process], index: int) -> None:
        """Stop a member, restart it after the fault's duration, and then go on with the next one."""
        if index == len(members):
            return
        process = members[index]
        process.fault = self._record(spec, group=process.group_id, client_id=process.client_id)

        def start_again() -> None:
            process.start()
            self._later(spec, self._deploy, spec, members, index + 1)

        process.stop(lambda: self._later(spec, start_again))

    # --- data ---

    def _poison(self, spec: FaultSpec, topic: str, partition: int, offset: int) -> None:
        self._record(spec, topic=topic, partition=partition, offset=offset)
        self._stage.topics.add_poison(TopicPartition(topic, partition), offset)

    def _delete_records(self, spec: FaultSpec, topic: str, partition: int, offset: int) -> None:
        start_offset = self._stage.topics.delete_records(TopicPartition(topic, partition), offset, self._loop.now_ms)
        self._record(spec, topic=topic, partition=partition, offset=start_offset)

    def _producer_stall(self, spec: FaultSpec, topic: str, duration_ms: int) -> None:
        self._record(spec, topic=topic, partition=spec.partition)
        now_ms = self._loop.now_ms
        self._stage.topics.stall(topic, spec.partition, now_ms, now_ms + duration_ms)
        self._stage.share_leaders.data_changed()

    def _add_partitions(self, spec: FaultSpec, topic: str, count: int) -> None:
        topics = self._stage.topics
        fault = self._record(spec, topic=topic, partitions=count)
        before = topics.partition_count(topic)
        topics.add_partitions(topic, count, self._loop.now_ms)
        self._stage.share_leaders.data_changed()
        self._stage.cluster.metadata.add_partitions(topic, topics.topic_id(topic), range(before, count))
        self._stage.cluster.update_metadata([topic])
        self._refresh_clients(topic, fault)

    def _create_topic(self, spec: FaultSpec, topic: str) -> None:
        topics, now_ms = self._stage.topics, self._loop.now_ms
        count = topics.create(topic, now_ms, spec.partitions)
        topic_id = topics.topic_id(topic)
        fault = self._record(spec, topic=topic, topic_id=topic_id, partitions=count)
        self._stage.truth.topic(topic, topic_id, count, now_ms)
        configs = topic_configs(topics.specs[topic])
        self._stage.cluster.metadata.make_topic(topic, topic_id, count, configs, at_ms=now_ms)
        self._stage.cluster.update_metadata([topic])
        self._refresh_clients(topic, fault)

    def _delete_topic(self, spec: FaultSpec, topic: str) -> None:
        topic_id = self._stage.topics.topic_id(topic)
        self._stage.topics.delete(topic, self._loop.now_ms)
        fault = self._record(spec, topic=topic, topic_id=topic_id)
        self._stage.truth.topic(topic, topic_id, 0, self._loop.now_ms)
        self._stage.cluster.metadata.remove_topic(topic_id)
        self._stage.cluster.topic_deleted(topic, topic_id)
        self._stage.share_leaders.topic_deleted(topic)
        self._refresh_clients(topic, fault)

    def _refresh_clients(self, topic: str, fault: int) -> None:
        """Clients that read a topic learn of the change when they refresh their metadata."""
        scenario = self._stage.scenario
        for group in scenario.groups:
            names = {group.name, *group.group_ids()}
            subscribed = {*group.topics}.union(*(it.topics or () for it in scenario.faults if it.group in names))
            if topic in subscribed:
                self._refresh_members(group, fault)

    def _refresh_members(self, group: GroupSpec, fault: int) -> None:
        for group_id in group.group_ids():
            for process in self._stage.members[group_id]:
                process.fault = fault
                delay_ms = process.uuids.randrange(METADATA_AGE_MS)
                self._loop.after(delay_ms, process.deliver, TopicsChanged())

    # --- administration ---

    def _group_ids(self, spec: FaultSpec) -> Iterator[str]:
        for group in self._stage.scenario.groups:
            yield from (group_id for group_id in group.group_ids() if spec.group in {group.name, group_id})

    def _alter_config(self, spec: FaultSpec, group: str, config: str, value: int | str) -> None:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        for group_id in self._group_ids(spec):
            self._record(spec, group=group_id, config=config, value=value)
            self._stage.cluster.metadata.set_group_config(group_id, config, text)
            self._stage.share_leaders.configure(group_id, config, value)

    def _administer(self, spec: FaultSpec, *needed: Any) -> None:
        """Send an admin request; the truth gets it once it is answered, with the error."""
        facts = dict(zip(FAULT_KEYS[spec.kind], needed, strict=True))
        for group_id in self._group_ids(spec):
            flow = partial(ADMIN_FLOWS[spec.kind], group_id, *needed[1:])
            self._stage.heartbeats.wake(group_id)
            self._stage.share_leaders.administer(
                group_id, flow, partial(self._administered, spec, {**facts, "group": group_id})
            )

    def _administered(self, spec: FaultSpec, facts: dict[str, Any], response: Any) -> None:
        code = error_of(response)
        self._record(spec, **facts, error=code.name if code else None)

    # --- brokers ---

    def _broker_failover(self, spec: FaultSpec, broker: int, duration_ms: int) -> None:
        fault = self._record(spec, broker=broker)
        self._stage.cluster.kill(broker)
        self._loop.after(DETECTION_MS, self._fence, broker, fault)
        self._loop.after(duration_ms, self._revive, broker, fault)

    def _fence(self, broker_id: int, fault: int) -> None:
        if broker_id not in self._stage.cluster.alive:
            self._stage.topics.fenced.add(broker_id)
            self._refresh_racks(fault)

    def _revive(self, broker_id: int, fault: int) -> None:
        self._stage.cluster.revive(broker_id)
        if broker_id in self._stage.topics.fenced:
            self._stage.topics.fenced.discard(broker_id)
            self._refresh_racks(fault)

    def _refresh_racks(self, fault: int) -> None:
        """Metadata has no rack for a fenced broker: to a group leader with a rack the partitions have changed."""
        scenario = self._stage.scenario
        for group in scenario.groups if scenario.cluster.racks else ():
            if group.protocol == "classic" and group.racks:
                self._refresh_members(group, fault)


def _altered(group_id: str, topic: str, partition: int, offset: int) -> Flow[Any]:
    wanted = AlterOffsetsTopic(topic, (AlterOffsetsPartition(partition, offset),))
    return alter_offsets(AlterShareGroupOffsetsRequest(group_id, (wanted,)))


ADMIN_FLOWS: Final[dict[str, Callable[..., Flow[Any]]]] = {
    "alter_share_offsets": _altered,
    "delete_share_offsets": lambda group_id, topic: delete_offsets(
        DeleteShareGroupOffsetsRequest(group_id, (DeleteOffsetsTopic(topic),))
    ),
    "describe_share_offsets": describe_offsets,
    "delete_group": lambda group_id: delete_groups((group_id,)),
}
"""Kind of fault -> the admin's request for a group, with the other values that the kind needs."""

STRIKES: Final[dict[str, Callable[..., None]]] = {
    "crash": lambda faults, spec, _: faults._for_a_while(spec, Process.crash, Process.start),
    "stop": lambda faults, spec, _: faults._for_a_while(spec, Process.stop, Process.start),
    "slow_poll": Faults._slow_poll,
    "repeat": Faults._repeat,
    "pause": lambda faults, spec, *_: faults._for_a_while(spec, Process.pause, Process.resume),
    "subscribe": Faults._subscribe,
    "alter_config": Faults._alter_config,
    "rolling_deploy": Faults._rolling_deploy,
    "poison": Faults._poison,
    "delete_records": Faults._delete_records,
    "producer_stall": Faults._producer_stall,
    "add_partitions": Faults._add_partitions,
    "create_topic": Faults._create_topic,
    "delete_topic": Faults._delete_topic,
    "broker_failover": Faults._broker_failover,
    **dict.fromkeys(ADMIN_FLOWS, Faults._administer),
}
"""Kind of fault -> what it does, with the values that the kind needs."""
