"""A whole simulation: the cluster, its data, its clients and the faults, from the start to the end."""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from coordinator_core.bytes.kafka_versions import Since
from coordinator_core.live.find_coordinator.internal_topics import CreatableTopic as InternalTopic
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.streams.messages import CreatableTopic, KeyValue
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.transaction_state import TOPIC as TRANSACTIONS_TOPIC
from simulator.simulation.clients.classic import ClassicConsumer
from simulator.simulation.clients.consumer import ConsumerMember
from simulator.simulation.clients.machine import MemberConfig
from simulator.simulation.clients.member import Member
from simulator.simulation.clients.share import ShareConsumer
from simulator.simulation.clients.streams import (
    HEARTBEAT_VERSION,
    HEARTBEAT_VERSION_44,
    StreamsConfig,
    StreamsMember,
    repartition_topic,
    topology_of,
)
from simulator.simulation.clock import EventLoop
from simulator.simulation.cluster import Cluster
from simulator.simulation.exchange import Exchange, Watch
from simulator.simulation.faults import Faults
from simulator.simulation.heartbeats import Heartbeats
from simulator.simulation.other_logs import METADATA_TOPIC_ID, topic_configs
from simulator.simulation.process import Process
from simulator.simulation.random_streams import java_uuid, kafka_uuid, stream
from simulator.simulation.scenario import GroupSpec, Scenario, TopicSpec, topics_made_later
from simulator.simulation.share_leader import ShareLeaders
from simulator.simulation.topics import Topics
from simulator.simulation.transactions import TopicTransactions
from simulator.simulation.truth import Sink, Truth
from simulator.simulation.truth_recorder import TruthRecorder

HOST_BLOCK = 250
"""Clients have the addresses 10.0.<block>.<1..250>, in the order of the scenario."""


DEFAULT_ASSIGNORS: Final = {"classic": ("range", "cooperative-sticky"), "consumer": (), "share": (), "streams": ()}
"""partition.assignment.strategy by default; members of the other protocols leave it to the broker."""


@dataclass(frozen=True, slots=True)
class Summary:
    scenario: str
    seed: int
    from_ms: int
    to_ms: int
    group_count: int
    client_count: int
    event_count: int
    request_count: int
    heartbeat_count: int
    """The heartbeats that were sent; below, those that were left out."""
    skipped_heartbeat_count: int
    truth_lines: dict[str, int]
    """File -> number of lines."""


class Simulation:
    """One simulation. Call `run` once; then the logs are in `cluster`."""

    def __init__(
        self,
        scenario: Scenario,
        sink: Sink,
        *,
        seed: int | None = None,
        skips_heartbeats: bool = True,
        watch: Watch | None = None,
    ) -> None:
        """`seed` replaces the scenario's. `skips_heartbeats` affects only the speed of a run. `watch`: the part of the
        exchange to write into the truth; None: nothing.
        """
        self.scenario = scenario
        self.seed = scenario.seed if seed is None else seed
        self.loop = EventLoop(scenario.start_ms)
        self.truth = Truth(sink)
        self._absent = topics_made_later(scenario.faults)
        self.topics = Topics(
            scenario.topics,
            start_ms=scenario.start_ms,
            retention_check_interval_ms=scenario.cluster.retention_check_interval_ms,
            seed=self.seed,
            absent=self._absent,
            brokers=scenario.cluster.brokers,
            racks=scenario.cluster.racks,
        )
        self.processes: dict[str, Process] = {}
        """Client id -> process."""
        self.members: dict[str, list[Process]] = {}
        """Group id -> processes, by index."""
        self.exchange = Exchange(self.truth, lambda: self.loop.now_ms, watch)
        self.truth_recorder = TruthRecorder(self.truth, self.exchange, self.processes.get, lambda: self.loop.now_ms)
        self.cluster = Cluster(
            scenario.cluster,
            self.loop,
            self.topics,
            self.truth_recorder,
            self.exchange,
            scenario.groups,
        )
        self.cluster.on_topic_made = self._note_topic
        self.cluster.on_streams_topics = self._make_streams_topics
        self.heartbeats = Heartbeats(
            self.loop, self.cluster.coordinator_of, self.cluster.timers_set, skips=skips_heartbeats
        )
        self.truth_recorder.heartbeats = self.heartbeats
        share_groups = {
            group_id: spec for spec in scenario.groups if spec.protocol == "share" for group_id in spec.group_ids()
        }
        self.share_leaders = ShareLeaders(self.cluster, self.loop, self.topics, self.truth, share_groups, self.seed)
        for spec in scenario.groups:
            for group_id in spec.group_ids():
                self.members[group_id] = [self._member(spec, group_id, index) for index in range(spec.members)]

    def run(self) -> Summary:
        """Run to the end of the scenario, and write the truth."""
        start_ms, end_ms = self.scenario.start_ms, self.scenario.end_ms
        self._write_metadata()
        for topic in self.scenario.topics:
            if topic.name not in self._absent:
                self.truth.topic(topic.name, self.topics.topic_id(topic.name), topic.partitions, start_ms)
        for spec in self.scenario.groups:
            for group_id in spec.group_ids():
                for index, process in enumerate(self.members[group_id]):
                    at_ms = start_ms + spec.start_after_ms + index * spec.stagger_ms
                    self.loop.at(at_ms + process.uuids.randrange(1000), process.start)
        if any(topic.transaction_records for topic in self.scenario.topics):
            if not self.cluster.has_transactions:
                self.cluster.make_internal_topics([TRANSACTIONS_TOPIC])
            TopicTransactions(self.loop, self.topics, self.cluster.transaction_logs).write()
        Faults(self).schedule()
        self.loop.run_until(end_ms)
        self.heartbeats.wake_where(lambda _group_id: True)
        self.cluster.settle()
        self.share_leaders.settle()
        self.exchange.end()
        self._record_end(end_ms)
        return Summary(
            self.scenario.name,
            self.seed,
            start_ms,
            end_ms,
            len(self.members),
            len(self.processes),
            self.loop.event_count,
            self.cluster.request_count,
            self.heartbeats.sent_count,
            self.heartbeats.skipped_count,
            dict(sorted(self.truth.counts.items())),
        )

    def logs(self) -> Iterator[tuple[PartitionLog, str]]:
        """The logs of the cluster's internal and dead letter topics, each with its topic's id."""
        yield self.cluster.metadata.log, METADATA_TOPIC_ID
        for topic, logs in self._internal_topics():
            topic_id = self._internal_topic_id(topic)
            for log in logs:
                yield log, topic_id
        yield from self.share_leaders.dead_letters.logs()

    def _internal_topics(self) -> Iterator[tuple[str, list[PartitionLog]]]:
        """The internal topics in use: brokers create each of them when it is first needed."""
        cluster = self.cluster
        if cluster.groups.exists:
            yield OFFSETS_TOPIC, cluster.groups.logs
        if cluster.shares.exists:
            yield SHARE_TOPIC, cluster.shares.logs
        if cluster.has_transactions:
            yield TRANSACTIONS_TOPIC, cluster.transaction_logs.logs

    def _internal_topic_id(self, topic: str) -> str:
        return kafka_uuid(stream(self.seed, "topic", topic))

    def _needed_topics(self) -> Iterator[str]:
        yield OFFSETS_TOPIC
        if any(spec.protocol == "share" for spec in self.scenario.groups):
            yield SHARE_TOPIC
        in_transactions = (spec.transaction_records for spec in self.scenario.topics)
        if any(in_transactions) or any(spec.commits == "transactional" for spec in self.scenario.groups):
            yield TRANSACTIONS_TOPIC

    def _note_topic(self, topic: InternalTopic) -> None:
        """Let the controller record an internal topic when it is created, even before the scenario starts."""
        topic_id = self._internal_topic_id(topic.name)
        at_ms = self.loop.now_ms if self.loop.event_count else None
        self.cluster.metadata.make_topic(topic.name, topic_id, topic.partition_count, topic.configs, at_ms=at_ms)

    def _write_metadata(self) -> None:
        """Write the controller's records from before the start of the scenario."""
        controller = self.cluster.metadata
        controller.set_up(self.scenario.groups)
        if not self.scenario.cluster.new_cluster:
            self.cluster.make_internal_topics(self._needed_topics())
        for spec in self.scenario.topics:
            if spec.name not in self._absent:
                topic_id = self.topics.topic_id(spec.name)
                controller.make_topic(spec.name, topic_id, spec.partitions, topic_configs(spec))

    # --- clients ---

    def _member(self, spec: GroupSpec, group_id: str, index: int) -> Process:
        rank = len(self.processes) + 1
        client_id = f"{group_id}-{index}"
        draws = stream(self.seed, "process", client_id)
        host = f"/10.0.{rank // HOST_BLOCK % 256}.{rank % HOST_BLOCK + 1}"
        latency_ms = draws.randint(*self.scenario.cluster.latency_ms)
        make = self._maker(spec, group_id, client_id, index)
        return self.new_process(rank, group_id, client_id, host, latency_ms, draws, make)

    def new_process(
        self,
        rank: int,
        group_id: str,
        client_id: str,
        host: str,
        latency_ms: int,
        uuids: random.Random,
        make: Callable[[random.Random], Member],
    ) -> Process:
        """A process in which `make` makes the clients, one after another."""
        process = Process(
            rank=rank,
            group_id=group_id,
            client_id=client_id,
            host=host,
            latency_ms=latency_ms,
            uuids=uuids,
            lookup_draws=stream(self.seed, "lookup", client_id),
            make=make,
            draws=lambda incarnation: stream(self.seed, "client", client_id, incarnation),
            loop=self.loop,
            network=self.cluster,
            heartbeats=self.heartbeats,
            truth=self.truth,
            exchange=self.exchange,
        )
        self.processes[client_id] = process
        return process

    def _streams(self, spec: GroupSpec, group_id: str, index: int) -> StreamsConfig:
        draws = stream(self.seed, "streams-process", group_id, index // spec.threads)
        version = self.scenario.cluster.kafka_version
        tags = spec.client_tags[index % len(spec.client_tags)] if spec.client_tags else ()
        return StreamsConfig(
            java_uuid(draws),
            topology_of(group_id, spec.topics, is_stateful=spec.stateful, has_repartition=spec.repartition),
            HEARTBEAT_VERSION_44 if Since.STREAMS_TASK_OFFSETS.holds_in(version) else HEARTBEAT_VERSION,
            tuple(KeyValue(key, value) for key, value in tags),
        )

    def _make_streams_topics(self, group_id: str, missing: Iterable[CreatableTopic]) -> None:
        """Create the missing internal topics of an application, as the broker that handled a heartbeat requests."""
        rates = {it.name: it.rate for it in self.scenario.topics}
        spec = next(it for it in self.scenario.groups if group_id in it.group_ids())
        made = []
        for topic in missing:
            if self.topics.partition_count(topic.name):
                continue
            is_read = topic.name == repartition_topic(group_id)
            rate = sum(rates[name] for name in spec.topics) if is_read else 0.0
            self.topics.create_internal(TopicSpec(topic.name, topic.num_partitions, rate), self.loop.now_ms)
            topic_id = self.topics.topic_id(topic.name)
            configs = [(config.name, config.value or "") for config in topic.configs]
            self.cluster.metadata.make_topic(
                topic.name, topic_id, topic.num_partitions, configs, at_ms=self.loop.now_ms
            )
            self.truth.topic(topic.name, topic_id, topic.num_partitions, self.loop.now_ms)
            made.append(topic.name)
        if made:
            self.cluster.update_metadata(made)

    def _maker(self, spec: GroupSpec, group_id: str, client_id: str, index: int) -> Callable[[random.Random], Member]:
        def own(of_each: Sequence[Any], usual: Any) -> Any:
            """The member's own value: members take those of a list in turns."""
            return of_each[index % len(of_each)] if of_each else usual

        config = MemberConfig(
            spec,
            group_id,
            client_id,
            topics=own(spec.member_topics, spec.topics),
            assignors=own(spec.member_assignors, spec.assignors or DEFAULT_ASSIGNORS[spec.protocol]),
            max_poll_interval_ms=own(spec.member_max_poll_interval_ms, spec.max_poll_interval_ms),
            rack_id=own(spec.racks, None),
            instance_id=own(spec.instance_ids, f"{group_id}-instance-{index}") if spec.static else None,
        )
        if spec.protocol == "share":
            return lambda draws: ShareConsumer(
                config, self.topics, draws, self.topics.names(), self.cluster.data_leader
            )
        if spec.protocol == "streams":
            streams = self._streams(spec, group_id, index)
            return lambda draws: StreamsMember(config, self.topics, draws, self.topics.names(), streams=streams)
        if spec.protocol == "consumer":
            return lambda draws: ConsumerMember(config, self.topics, draws, self.topics.names())
        return lambda draws: ClassicConsumer(config, self.topics, draws)

    # --- the end of the truth ---

    def _record_end(self, now_ms: int) -> None:
        for client_id, process in self.processes.items():
            if process.client is not None:
                self.truth.gave(process.group_id, client_id, process.client.positions(now_ms), "STILL", now_ms)
        for group_id, state in sorted(self.cluster.dump().items()):
            self.truth.record("end", now_ms, {"group": group_id, "state": state})
        for key, partition in sorted(self.cluster.share_partitions().items()):
            facts = {
                "group": key.group_id,
                "topic_id": key.topic_id,
                "partition": key.partition,
                "state_epoch": partition.state_epoch,
                "start_offset": partition.start_offset,
                "state_batches": [list(astuple(batch)) for batch in partition.state_batches],
            }
            self.truth.record("end_share", now_ms, facts)
        for log, _ in self.logs():
            facts = {"topic": log.topic, "partition": log.partition, "end_offset": log.end_offset}
            self.truth.record("log_ends", now_ms, facts)
