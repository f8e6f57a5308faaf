"""The brokers: requests under way, coordinators and their leaders, and failover.

A broker that is down answers no request: its connections break, and clients notice this after their latency.
`DETECTION_MS` later the controller elects new leaders. Calls between brokers (persister, transaction markers) take
`INTERNAL_MS`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from coordinator_core.bytes.log.compression import Codec
from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.coordinator.operation import Client
from coordinator_core.live.coordinator.records import Producer
from coordinator_core.live.coordinator.shard import GroupCoordinator
from coordinator_core.live.find_coordinator.broker import (
    ClusterView,
    Coordinator,
    FindCoordinatorRequest,
    Node,
    find_coordinators,
)
from coordinator_core.live.find_coordinator.internal_topics import (
    CreatableTopic,
    InternalTopicsConfig,
    TopicCreation,
    creatable_topic,
)
from coordinator_core.live.offsets.messages import (
    DeletedTopic,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
    OffsetCommitTopic,
    PartitionError,
    TxnOffsetCommitRequest,
)
from coordinator_core.live.runtime.coordinator import RuntimeConfig
from coordinator_core.live.runtime.messages import Answer, EndTransaction, Request
from coordinator_core.live.runtime.partition import PartitionLog
from coordinator_core.live.runtime.runtime import CoordinatorRuntime
from coordinator_core.live.runtime.share_machines import ShareMachines
from coordinator_core.live.share.messages import InitializeShareState
from coordinator_core.live.share_state.config import ShareCoordinatorConfig
from coordinator_core.live.streams.messages import CreatableTopic as StreamsTopic
from coordinator_core.replay.lookup import group_partition
from schemas.consumer_offsets import TOPIC as OFFSETS_TOPIC
from schemas.error_codes import ErrorCode
from schemas.share_group_state import TOPIC as SHARE_TOPIC
from schemas.transaction_state import TOPIC as TRANSACTIONS_TOPIC
from schemas.transaction_state import TransactionStatus
from simulator.simulation.clients.machine import RETRY_BACKOFF_MS, Send, Service
from simulator.simulation.clients.producer import InitProducerIdRequest
from simulator.simulation.clock import EventLoop
from simulator.simulation.exchange import Exchange
from simulator.simulation.internal_topic import InternalTopic
from simulator.simulation.other_logs import MetadataLog, TransactionLogs
from simulator.simulation.process import HEARTBEAT, Process
from simulator.simulation.random_streams import java_uuid
from simulator.simulation.scenario import ClusterSpec, GroupSpec, coordinator_configs
from simulator.simulation.topics import Topics
from simulator.simulation.transactions import Transaction, Transactions
from simulator.simulation.truth_recorder import COMMITS, ObservedMachine, ObservedMachines, TruthRecorder

DETECTION_MS: Final = 2000
"""The time from a broker's failure to the election of other leaders."""
REBALANCE_LEADERS_MS: Final = 10_000
"""The time from a broker's return until it again leads its preferred partitions."""
INTERNAL_MS: Final = 1
"""The one-way latency between two brokers."""
TOPIC_CREATION_MS: Final = 20
"""The time from a broker's request to the controller until all brokers know the topic."""

JOINS: Final = frozenset({"classic_join"})
"""Operations that may assign a member id."""

Respond = Callable[[Any, ErrorCode | None], None]
"""Called with the response, or with an error that replaces it."""
DataServer = Callable[[Process, int, Send, Respond], None]
"""Serves requests to leaders of data partitions: (the process that asks, broker, request, what answers it)."""
OnAnswer = Callable[[Answer], None]


def _nothing(*_: object) -> None:
    """In place of a callback."""


class Cluster:
    """All brokers, and the logs that they share."""

    def __init__(
        self,
        spec: ClusterSpec,
        loop: EventLoop,
        topics: Topics,
        truth_recorder: TruthRecorder,
        exchange: Exchange,
        groups: Sequence[GroupSpec] = (),
    ) -> None:
        self.spec = spec
        self.exchange = exchange
        self._group_settings = {
            group_id: self._settings_of(group) for group in groups for group_id in group.group_ids()
        }
        """Group id -> the configs of the group, as coordinators name them."""
        self.truth_recorder = truth_recorder
        self.alive = set(range(1, spec.brokers + 1))
        self.image_version = 1
        self.request_count = 0
        self.serve_data: DataServer = _nothing
        self.on_initialize: Callable[[str, InitializeShareState], None] = _nothing
        """Called with the share partitions without state that a heartbeat of a group found."""
        self.on_streams_topics: Callable[[str, Sequence[StreamsTopic]], None] = _nothing
        """Called with the missing internal topics of an application, when the controller creates them."""
        self.on_disconnect: Callable[[Process, str], None] = _nothing
        """Called when the connections of a process break, with the id of its member."""
        self.on_broker_gone: Callable[[int], None] = _nothing
        self.on_leaders_changed: Callable[[], None] = _nothing
        """Called when leaders of data partitions have changed."""
        self._loop = loop
        self._topics = topics
        self._request_id = 0
        self._asked: dict[int, tuple[int, OnAnswer, Callable[[], None]]] = {}
        """Request id -> (broker, callback for the answer, callback for the failure of the broker)."""
        self._group_partitions: dict[str, int] = {}
        self.groups = InternalTopic(
            OFFSETS_TOPIC,
            spec.consumer_offsets_partitions,
            spec.brokers,
            loop=loop,
            cluster=self,
            make_runtime=self._group_runtime,
        )
        self.shares = InternalTopic(
            SHARE_TOPIC,
            spec.share_group_state_partitions,
            spec.brokers,
            loop=loop,
            cluster=self,
            make_runtime=self._share_runtime,
        )
        self.metadata = MetadataLog(spec, loop)
        self.transaction_logs = TransactionLogs(spec, loop)
        self.transactions = Transactions(
            loop,
            self._write_marker,
            transaction_version=spec.transaction_version,
            on_change=self._write_transaction,
        )
        self.has_transactions = False
        """Whether `__transaction_state` was created."""
        self.on_topic_made: Callable[[CreatableTopic], None] = _nothing
        """Called for each internal topic, as it is created."""
        self._topics_config = InternalTopicsConfig(
            offsets_topic_num_partitions=spec.consumer_offsets_partitions,
            offsets_topic_segment_bytes=spec.segment_bytes,
            transaction_state_log_num_partitions=spec.transaction_state_partitions,
            transaction_state_log_segment_bytes=spec.segment_bytes,
            share_coordinator_state_topic_num_partitions=spec.share_group_state_partitions,
            share_coordinator_state_topic_segment_bytes=spec.segment_bytes,
        )
        self._creations = {broker_id: TopicCreation(self._topics_config) for broker_id in range(1, spec.brokers + 1)}

    # --- coordinators and their brokers ---

    def nodes(self) -> Sequence[int]:
        """The brokers that are up."""
        return sorted(self.alive)

    def find_coordinators(
        self, broker_id: int, request: FindCoordinatorRequest, group_id: str, sender: str | int
    ) -> Sequence[Coordinator] | None:
        """A broker's answer to FindCoordinator; None if the broker is down. A missing topic is created.

        `group_id` and `sender`: for which group, and which client or broker asks (`Exchange.asked`).
        """
        number = self.exchange.asked(group_id, sender, broker_id, request, version=request.api_version)
        if broker_id not in self.alive:
            self.exchange.answered(number, None, ErrorCode.REQUEST_TIMED_OUT)
            return None
        found = find_coordinators(self._view(), request, self._topics_config)
        self.exchange.answered(number, found)
        for topic in self._creations[broker_id].request(found.missing_topics):
            self._loop.after(TOPIC_CREATION_MS, self._make_topic, broker_id, topic)
        return found.coordinators

    def _view(self) -> ClusterView:
        leaders: dict[str, tuple[int | None, ...]] = {
            topic.topic: tuple(log.leader for log in topic.logs) for topic in (self.groups, self.shares) if topic.exists
        }
        if self.has_transactions:
            leaders[TRANSACTIONS_TOPIC] = (min(self.alive, default=None),) * len(self.transaction_logs.logs)
        return ClusterView({broker_id: Node(broker_id, "", -1) for broker_id in self.alive}, leaders)

    def _make_topic(self, broker_id: int, topic: CreatableTopic) -> None:
        """Let the controller create an internal topic, unless another broker asked for it first."""
        self._creations[broker_id].done(topic.name)
        if topic.name not in self._view().leaders:
            self.make_topic(topic)

    def make_topic(self, topic: CreatableTopic) -> None:
        if topic.name == TRANSACTIONS_TOPIC:
            self.has_transactions = True
        else:
            {OFFSETS_TOPIC: self.groups, SHARE_TOPIC: self.shares}[topic.name].start()
        self.on_topic_made(topic)

    def make_internal_topics(self, names: Iterable[str]) -> None:
        """Create these before any request needs one."""
        for name in names:
            self.make_topic(creatable_topic(name, self._topics_config))

    def _settings_of(self, group: GroupSpec) -> dict[str, int]:
        configs = coordinator_configs(group, self.spec.settings)
        return {name.replace(".", "_"): value for name, value in configs.items()}

    def configure(self, group_id: str, group: GroupSpec) -> None:
        """Configs of a group have changed; those of its coordinator work with the next heartbeat of each member."""
        settings = self._settings_of(group)
        if settings != self._group_settings[group_id]:
            self.truth_recorder.heartbeats.wake(group_id)
            self._group_settings[group_id].update(settings)

    # --- requests of clients ---

    def partition_of(self, group_id: str) -> int:
        """The log partition of a group (cached)."""
        partition = self._group_partitions.get(group_id)
        if partition is None:
            partition = group_partition(group_id, len(self.groups.logs))
            self._group_partitions[group_id] = partition
        return partition

    def data_leader(self, at: TopicPartition) -> int | None:
        """The broker that leads a data partition, among those that are up; None if there is none."""
        first = sum(at.topic.encode()) + at.partition
        candidates = ((first + index) % self.spec.brokers + 1 for index in range(self.spec.brokers))
        return next((broker_id for broker_id in candidates if broker_id in self.alive), None)

    def disconnected(self, process: Process, member_id: str) -> None:
        """A process ended: its connections to the brokers break."""
        self._loop.after(process.latency_ms, self.on_disconnect, process, member_id)

    def deliver(self, process: Process, broker_id: int, send: Send, *, is_late: bool = False) -> None:
        """`is_late`: once more, over a connection that is closed by now."""
        self.request_count += 1
        incarnation = process.incarnation
        if is_late:
            self.truth_recorder.heartbeats.wake(process.group_id)
        elif self._loop.now_ms < process.repeats_until_ms and send.service is not Service.TRANSACTION:
            late = partial(self.deliver, process, broker_id, send, is_late=True)
            rank = process.rank if send.tag == HEARTBEAT else 0  # as the first time
            self._loop.after(process.repeats_after_ms, late, rank=rank)
        number = self.exchange.asked(
            process.group_id,
            process.client_id,
            broker_id,
            send.request,
            operation=send.operation,
            version=send.api_version,
        )

        def respond(response: Any, error: ErrorCode | None = None) -> None:
            self.exchange.answered(number, response, error)
            if not is_late:
                self._loop.after(process.latency_ms, process.answered, incarnation, send, response, error)

        def lost() -> None:
            respond(None, ErrorCode.REQUEST_TIMED_OUT)

        if broker_id not in self.alive:
            lost()
        elif send.service is Service.DATA:
            self.serve_data(process, broker_id, send, respond)
        elif send.service is Service.TRANSACTION:
            is_init = isinstance(send.request, InitProducerIdRequest)
            serve = self.transactions.init_producer_id if is_init else self.transactions.end_txn
            serve(send.request, respond)
        else:
            self._serve_group(process, broker_id, send, respond, lost)

    def _serve_group(
        self, process: Process, broker_id: int, send: Send, respond: Respond, lost: Callable[[], None]
    ) -> None:
        """A request reaches the coordinator of a group, which checks what concerns transactions and topics first."""
        if isinstance(send.request, TxnOffsetCommitRequest):
            code = self.transactions.refusal(send.request)
            if code is not None:
                respond(None, code)
                return
        message: Any = send.request
        unknown: tuple[OffsetCommitResponseTopic, ...] = ()
        if isinstance(message, OffsetCommitRequest):
            message, unknown = self._without_unknown_topics(message)
            if unknown and not message.topics:
                respond(OffsetCommitResponse(topics=unknown), None)
                return

        def answered(answer: Answer) -> None:
            if send.operation in COMMITS:
                self.truth_recorder.heartbeats.signed(process)
            response = answer.response
            wanted = getattr(response, "initialize_share_state", None)
            if wanted is not None:
                self.on_initialize(send.key, wanted)
            lacking = getattr(response, "creatable_topics", ())
            if lacking:
                self._loop.after(TOPIC_CREATION_MS, self.on_streams_topics, send.key, lacking)
            if unknown and response is not None:
                response = replace(response, topics=(*unknown, *response.topics))
            respond(response, None if answer.error is None else answer.error.code)

        self.ask(
            self.groups,
            self.partition_of(send.key),
            broker_id,
            send.operation,
            message,
            answered,
            lost,
            api_version=send.api_version,
            client=Client(process.client_id, process.host),
            new_uuid=java_uuid(process.uuids) if send.operation in JOINS else "",
        )

    def _without_unknown_topics(
        self, request: OffsetCommitRequest
    ) -> tuple[OffsetCommitRequest, tuple[OffsetCommitResponseTopic, ...]]:
        """The part of a commit for the coordinator, and the answer for the partitions that the broker does not know.

        Source: KafkaApis.handleOffsetCommitRequest.
        """

        def exists(topic: OffsetCommitTopic, number: int) -> bool:
            return self._topics.exists(TopicPartition(topic.name, number))

        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = []
        for topic in request.topics:
            numbers = (partition.partition_index for partition in topic.partitions)
            errors = tuple(PartitionError(number, code) for number in numbers if not exists(topic, number))
            if errors:
                unknown.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, errors))
        if not unknown:
            return request, ()
        kept = (
            replace(topic, partitions=tuple(one for one in topic.partitions if exists(topic, one.partition_index)))
            for topic in request.topics
        )
        return replace(request, topics=tuple(topic for topic in kept if topic.partitions)), tuple(unknown)

    def ask(
        self,
        topic: InternalTopic,
        partition: int,
        broker_id: int,
        operation: str,
        message: Any,
        on_answer: OnAnswer,
        on_lost: Callable[[], None],
        **fields: Any,
    ) -> None:
        """Submit an operation to the coordinator that a broker, which is up, has of a partition of `groups` or
        `shares`: there the part of a request for one share partition."""
        request = Request(operation, message, self._new_request(broker_id, on_answer, on_lost), **fields)
        topic.submit(broker_id, partition, request)

    def _new_request(self, broker_id: int, on_answer: OnAnswer, on_lost: Callable[[], None]) -> int:
        """The id of a new request, for whose answer or loss one of the callbacks is called."""
        self._request_id += 1
        self._asked[self._request_id] = (broker_id, on_answer, on_lost)
        return self._request_id

    def answered(self, answer: Answer) -> None:
        """A broker has an answer: give it to the callback of the request."""
        asked = self._asked.pop(answer.request_id, None)
        if asked is not None:
            asked[1](answer)

    # --- events of the internal topics; the leaders of the data record the truth of `__share_group_state` ---

    def committed(self, log: PartitionLog) -> None:
        """Report the committed records to the truth."""
        if log.topic == OFFSETS_TOPIC:
            self.truth_recorder.committed(log.partition, log.high_watermark)

    def elected(self, log: PartitionLog) -> None:
        """Let the controller record the new leader, and drop from the truth what that one does not have."""
        self.metadata.elect(log.topic, log.partition, log.leader)
        if log.topic == OFFSETS_TOPIC and log.leader is not None:
            self.truth_recorder.forget(log.partition, log.end_offset)

    def _write_marker(self, group_id: str, producer: Producer, is_commit: bool, on_done: Callable[[], None]) -> None:
        """Write the marker of a transaction into a group's log, on the leader of that log, and retry until it
        succeeds."""

        def again() -> None:
            self._loop.after(RETRY_BACKOFF_MS, self._write_marker, group_id, producer, is_commit, on_done)

        def answered(answer: Answer) -> None:
            if answer.error is None:
                on_done()
            else:
                again()

        partition = self.partition_of(group_id)
        leader = self.groups.leader(partition)
        if leader is None:
            again()
            return
        request_id = self._new_request(leader, answered, again)
        self.groups.submit(leader, partition, EndTransaction(producer, is_commit, 0, request_id))

    def _write_transaction(self, transaction: Transaction, status: TransactionStatus) -> None:
        """Write the new state of a transactional id into the transaction coordinator's log."""
        group_id = transaction.group_id
        self.transaction_logs.write(
            transaction.transactional_id,
            status,
            transaction.producer_id,
            transaction.producer_epoch,
            () if group_id is None else ((OFFSETS_TOPIC, self.partition_of(group_id)),),
            transaction.started_ms,
        )

    # --- sessions, for `heartbeats` ---

    def coordinator_of(self, group_id: str) -> GroupCoordinator | None:
        """The group's coordinator, whether its broker is up or not."""
        machine = self.groups.leader_machine(self.partition_of(group_id))
        return machine.coordinator if isinstance(machine, ObservedMachine) else None

    def timers_set(self, group_id: str) -> None:
        """A timer of the group's coordinator was set, not by itself."""
        self.groups.touch(self.partition_of(group_id))

    # --- topics ---

    def update_metadata(self, changed_topics: Iterable[str]) -> None:
        """Update all coordinators after topics have changed."""
        self.image_version += 1
        image = self._topics.image(self.image_version)
        self._wake(lambda _partition: True)
        for topic in (self.groups, self.shares):
            for broker_id, runtime in topic.runtimes.items():
                runtime.update_metadata(image, changed_topics)
                topic.run_soon(broker_id)

    def topic_deleted(self, topic: str, topic_id: str) -> None:
        """A topic was deleted: every coordinator deletes its offsets, and the state of share groups for it.

        Source: GroupCoordinatorService.onMetadataUpdate. A coordinator that is loading at that time misses it.
        """
        self.update_metadata([topic])
        for operation in ("on_topics_deleted", "maybe_cleanup_share_group_state"):
            self._loop.after(INTERNAL_MS, self._ask_all, operation, (DeletedTopic(topic, topic_id),))

    def _ask_all(self, operation: str, message: Any) -> None:
        """Submit an operation to all active group coordinators; it has no answer (scheduleWriteAllOperation)."""
        for log in self.groups.logs:
            leader = self.groups.leader(log.partition)
            if leader is not None:
                self._request_id += 1
                self.groups.submit(leader, log.partition, Request(operation, message, self._request_id))

    def _wake(self, is_wanted: Callable[[int], bool]) -> None:
        """Wake the groups of the wanted log partitions: their members send heartbeats again."""
        self.truth_recorder.heartbeats.wake_where(lambda group_id: is_wanted(self.partition_of(group_id)))

    # --- brokers that fail and return ---

    def _group_runtime(self, broker_id: int) -> CoordinatorRuntime:
        config = RuntimeConfig(
            append_linger_ms=self.spec.append_linger_ms, codec_id=Codec[self.spec.compression.upper()]
        )
        settings = replace(self.spec.settings, kafka_version=self.spec.kafka_version)
        kind = ObservedMachines(settings, self.truth_recorder, self._group_settings)
        return CoordinatorRuntime(broker_id, kind, config, self._topics.image(self.image_version))

    def _share_runtime(self, broker_id: int) -> CoordinatorRuntime:
        kind = ShareMachines(
            ShareCoordinatorConfig(
                self.spec.share_snapshot_update_records_per_snapshot, kafka_version=self.spec.kafka_version
            )
        )
        return CoordinatorRuntime(broker_id, kind, RuntimeConfig(), self._topics.image(self.image_version))

    def kill(self, broker_id: int) -> None:
        """A broker fails, and its state in memory is lost."""
        if broker_id not in self.alive:
            return
        led = self.groups.led_by(broker_id)
        self._wake(lambda partition: partition in led)
        self.alive.discard(broker_id)
        for request_id, (asked_broker, _, on_lost) in tuple(self._asked.items()):
            if asked_broker == broker_id:
                del self._asked[request_id]
                on_lost()
        self.on_broker_gone(broker_id)
        self.on_leaders_changed()
        self._loop.after(DETECTION_MS, self._elect_after, broker_id)

    def _elect_after(self, broker_id: int) -> None:
        if broker_id not in self.alive:
            self.groups.elect_after(broker_id)
            self.shares.elect_after(broker_id)

    def revive(self, broker_id: int) -> None:
        """The broker is up again: it fetches what it missed, and later leads its preferred partitions again."""
        if broker_id in self.alive:
            return
        self.alive.add(broker_id)
        self.on_leaders_changed()
        self.groups.revive(broker_id)
        self.shares.revive(broker_id)
        self._loop.after(REBALANCE_LEADERS_MS, self._lead_again, broker_id)

    def _lead_again(self, broker_id: int) -> None:
        if broker_id not in self.alive:
            return
        preferred = self.groups.preferred_of(broker_id)
        partitions = {log.partition for log in preferred}
        self._wake(lambda partition: partition in partitions)
        for log in preferred:
            self.groups.lead_again(log, broker_id)
        for log in self.shares.preferred_of(broker_id):
            self.shares.lead_again(log, broker_id)

    # --- the end ---

    def settle(self) -> None:
        """Replicate all that was appended, so that the truth and the logs end at the same point."""
        for topic in (self.groups, self.shares):
            topic.lead_offline()
            for log in topic.logs:
                if log.leader is not None:
                    topic.fetch_all(log)
        for log in self.groups.logs:
            if log.leader is not None:
                self.truth_recorder.committed(log.partition, log.high_watermark)
        for log in self.shares.logs:  # their truth is in the answers
            self.shares.note_commits(log)

    def dump(self) -> dict[str, Any]:
        """Group id -> its state in its coordinator."""
        groups: dict[str, Any] = {}
        for log in self.groups.logs:
            machine = self.groups.leader_machine(log.partition)
            if isinstance(machine, ObservedMachine):
                groups.update(machine.coordinator.dump())
        return groups

    def share_partitions(self) -> Mapping[Any, Any]:
        """SharePartitionKey -> its state in its share coordinator."""
        states: dict[Any, Any] = {}
        for log in self.shares.logs:
            machine = self.shares.leader_machine(log.partition)
            if machine is not None:
                states.update(machine.state.share_partitions)
        return states
