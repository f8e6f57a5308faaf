"""The leaders of the data: share sessions, share partitions in flight, and their persisters (SharePartitionManager).

Each broker has its own sessions, the share partitions of the data that it leads, and a `Persister` through which they
read and write their state at the share coordinators. A broker that fails loses all this: the next leader reads what was
persisted. A member whose connection breaks loses the records that it had acquired.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from coordinator_core.live.assignors.client_group import TopicPartition
from coordinator_core.live.coordinator.operation import Outcome
from coordinator_core.live.find_coordinator.broker import CoordinatorType, FindCoordinatorRequest
from coordinator_core.live.find_coordinator.client import NodeLoad, least_loaded_node
from coordinator_core.live.runtime.messages import Answer
from coordinator_core.live.runtime.share_machines import partition_requests, result_of
from coordinator_core.live.share.messages import InitializeShareState
from coordinator_core.live.share.service import Ask, Flow, Persist, initialize_after_heartbeat, persist
from coordinator_core.live.share_partition.acknowledge import acknowledge, expire_lock, next_deadline_ms, release
from coordinator_core.live.share_partition.archive import Undelivered, undelivered_below, update_log_start_offset
from coordinator_core.live.share_partition.dead_letters import complete_copy, take_copies
from coordinator_core.live.share_partition.errors import NotInitialized, RefusedRequest
from coordinator_core.live.share_partition.initialize import fence
from coordinator_core.live.share_partition.state import (
    AcknowledgementBatch,
    AcquiredRecords,
    SharePartition,
    SharePartitionConfig,
    WriteCause,
    WriteState,
)
from coordinator_core.live.share_partition.states import AcknowledgeType, RecordState
from coordinator_core.live.share_state.messages import Response, TopicResult
from coordinator_core.live.share_state.persister import Lookup, Persister
from coordinator_core.live.share_state.persister import Send as PersisterSend
from coordinator_core.replay.lookup import SharePartitionKey, share_partition_partition
from coordinator_core.replay.share_state.combine import StateBatch
from schemas.error_codes import ErrorCode
from simulator.simulation.clients.machine import RETRY_BACKOFF_MS, Send
from simulator.simulation.clients.share_messages import (
    CLOSE_EPOCH,
    OPEN_EPOCH,
    SHARE_FETCH,
    ShareFetchRequest,
    ShareFetchResponse,
)
from simulator.simulation.clock import EventLoop
from simulator.simulation.cluster import INTERNAL_MS, Cluster, Respond
from simulator.simulation.dead_letters import DeadLetterLogs, DeadLetterSender
from simulator.simulation.delayed_share_fetch import (
    Acquired,
    DataBroker,
    DelayedShareFetch,
    Served,
    ShareFetches,
    ShareSession,
    rotated,
)
from simulator.simulation.exchange import SHARE_PARTITION, api_of
from simulator.simulation.internal_topic import REPLICATION_MS
from simulator.simulation.process import Process
from simulator.simulation.random_streams import stream
from simulator.simulation.scenario import GroupSpec, with_config
from simulator.simulation.topics import Topics
from simulator.simulation.truth import Truth
from simulator.simulation.values import reset_duration_ms

GIVEN_UP_STATES: Final = frozenset({RecordState.ARCHIVING, RecordState.ARCHIVED})
GIVEN_UP: Final = {(int(AcknowledgeType.REJECT),): "REJECTED", (int(AcknowledgeType.GAP),): "GAP"}
"""Acknowledge types of a batch -> the reason why its records are archived."""
FENCING: Final = frozenset(
    {
        "FencedStateEpochException",
        "GroupIdNotFoundException",
        "NotLeaderOrFollowerException",
        "UnknownTopicOrPartitionException",
    }
)
"""Errors of an acknowledgement or a release after which the leader drops the share partition, to read its state again
(SharePartitionManager.fencedSharePartitionHandler)."""
WITHOUT_RESPONSE: Final = frozenset({"initialize_share_group_state", "uninitialize_share_group_state"})
"""Operations of the group coordinator that have no answer if they succeed."""
WRITTEN_MS: Final = 2 * REPLICATION_MS
"""How long after these operations their records are committed."""


class ShareLeaders:
    """The part of all brokers in share groups."""

    def __init__(
        self,
        cluster: Cluster,
        loop: EventLoop,
        topics: Topics,
        truth: Truth,
        groups: dict[str, GroupSpec],
        seed: int,
    ) -> None:
        """`groups`: the share groups by group id."""
        self._cluster = cluster
        self._loop = loop
        self._topics = topics
        self._truth = truth
        self._groups = groups
        self._seed = seed
        self._leader_epochs: dict[TopicPartition, tuple[int, int]] = {}
        """Data partition -> (leader, epoch)."""
        self._brokers: dict[int, DataBroker] = {}
        self.dead_letters = DeadLetterLogs(topics, loop, self._records_came)
        self._request_id = 0
        self._fetches = ShareFetches(
            loop, topics, cluster.spec.share_fetch_read_ms, self._move_log_start, self._on_acquired
        )
        cluster.serve_data = self.serve
        cluster.on_broker_gone = self._on_broker_gone
        cluster.on_leaders_changed = self._lead_again
        cluster.on_initialize = self._initialize
        cluster.on_disconnect = self._disconnected

    # --- after heartbeats ---

    def _initialize(self, group_id: str, wanted: InitializeShareState) -> None:
        """A heartbeat found partitions without state: the broker initializes it."""
        leader = self._cluster.groups.leader(self._cluster.partition_of(group_id))
        if leader is not None:
            flow = initialize_after_heartbeat(group_id, wanted)
            self._step(self._broker(leader), group_id, flow, None, lambda response: None)

    def administer(self, group_id: str, make_flow: Callable[[], Flow[Any]], on_done: Callable[[Any], None]) -> None:
        """An admin client's request reaches the group's coordinator; `on_done` is called with the response.

        The group is empty, or it refuses. The leaders of its share partitions dropped them when the group's last
        session ended (ShareGroupListener.onGroupEmpty), and read the persisted state when a member joins again.
        """
        leader = self._cluster.groups.leader(self._cluster.partition_of(group_id))
        if leader is None:
            self._loop.after(RETRY_BACKOFF_MS, self.administer, group_id, make_flow, on_done)
            return

        def done(response: Any) -> None:
            for broker in self._brokers.values():
                if not any(group == group_id for group, _ in broker.sessions):
                    for place in [place for place in broker.served if place[0] == group_id]:
                        self._drop(broker, place, "the group is empty")
            on_done(response)

        self._step(self._broker(leader), group_id, make_flow(), None, done)

    def configure(self, group_id: str, config: str, value: int | str) -> None:
        """Change a config of a group: its coordinator and leaders look it up when they need it (GroupConfigManager)."""
        self._groups[group_id] = group = with_config(self._groups[group_id], config, value)
        self._cluster.configure(group_id, group)
        for broker in self._brokers.values():
            for served in broker.served.values():
                if served.group_id == group_id:
                    served.partition.config = self._config(group_id, served.partition.config.leader_epoch)

    def _config(self, group_id: str, leader_epoch: int) -> SharePartitionConfig:
        spec, group = self._cluster.spec, self._groups[group_id]
        return SharePartitionConfig(
            leader_epoch=leader_epoch,
            in_flight_records_max=group.max_record_locks,
            delivery_count_limit=group.delivery_count_limit or spec.share_delivery_count_limit,
            record_lock_duration_ms=group.record_lock_duration_ms or spec.share_record_lock_duration_ms,
            is_renew_acknowledge_enabled=group.renew_acknowledge,
            kafka_version=spec.kafka_version,
            has_dead_letter_topic=group.dead_letter_topic is not None,
        )

    def _step(
        self, broker: DataBroker, group_id: str, flow: Flow[Any], answer: Any, on_done: Callable[[Any], None]
    ) -> None:
        """Continue a flow until it waits again."""
        if broker.is_gone:
            return
        try:
            step = flow.send(answer)
        except StopIteration as end:
            on_done(end.value)
            return
        if isinstance(step, Ask):
            self._ask(broker, group_id, flow, step, on_done)
        elif isinstance(step, Persist):
            persist(broker.persister, step, lambda results: self._step(broker, group_id, flow, results, on_done))
            self._pump(broker)

    def _ask(
        self, broker: DataBroker, group_id: str, flow: Flow[Any], step: Ask, on_done: Callable[[Any], None]
    ) -> None:
        is_answered = False

        def go_on(outcome: Outcome) -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                self._step(broker, group_id, flow, outcome, on_done)

        # If this broker fails, nothing finishes its flow: the next heartbeat finds the partitions again.
        self._cluster.ask(
            self._cluster.groups,
            self._cluster.partition_of(group_id),
            broker.broker_id,
            step.operation,
            step.request,
            lambda answer: go_on(Outcome(answer.response, answer.error)),
            lambda: None,
        )
        if step.operation in WITHOUT_RESPONSE:
            self._loop.after(WRITTEN_MS, go_on, Outcome())

    # --- requests ---

    def serve(self, process: Process, broker_id: int, send: Send, answer: Respond) -> None:
        """A ShareFetch or ShareAcknowledge reaches a broker that is up."""
        request: ShareFetchRequest = send.request
        broker = self._broker(broker_id)
        if not process.is_alive:
            return  # the connection is closed: the acquired records were released already
        respond = self._responder(broker, answer)
        session = (request.group_id, request.member_id)
        if request.session_epoch == OPEN_EPOCH:
            is_full = len(broker.sessions.keys() - {session}) >= self._cluster.spec.share_sessions_max
            if is_full:
                # Not at once: otherwise the member would ask again and again.
                full = ShareFetchResponse(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
                self._loop.after(request.max_wait_ms, respond, full)
                return
            self._release_all(broker, *session)
            broker.sessions[session] = ShareSession()
        found = broker.sessions.get(session)
        if found is None:
            respond(ShareFetchResponse(ErrorCode.SHARE_SESSION_NOT_FOUND))
            return
        if request.session_epoch not in {found.epoch, CLOSE_EPOCH}:
            respond(ShareFetchResponse(ErrorCode.INVALID_SHARE_SESSION_EPOCH))
            return
        found.epoch += 1
        found.partitions.update(dict.fromkeys(request.partitions))
        for at in request.forgotten:
            found.partitions.pop(at, None)
        errors: dict[TopicPartition, str | None] = {}
        found_records: list[Acquired] = []

        def answer_if_done() -> None:
            if broker.is_gone or not found_records or len(errors) < len(request.acknowledgements):
                return
            lock_timeout_ms = self._config(request.group_id, 0).record_lock_duration_ms
            response = ShareFetchResponse(0, found_records.pop(), errors, lock_timeout_ms)
            if request.session_epoch == CLOSE_EPOCH:
                self._release_all(broker, *session)
                self._pump(broker)
            respond(response)

        def acknowledged(at: TopicPartition, error_class: str | None) -> None:
            errors[at] = error_class
            answer_if_done()

        def fetched(acquired: Acquired) -> None:
            found_records.append(acquired)
            answer_if_done()

        for at, batches in request.acknowledgements.items():
            self._acknowledge(broker, process, request, at, batches, partial(acknowledged, at))
        if request.session_epoch == CLOSE_EPOCH:
            del broker.sessions[session]
            fetched({})
        elif send.operation == SHARE_FETCH:
            self._fetch(broker, process, request, rotated(tuple(found.partitions), request.session_epoch), fetched)
        else:
            fetched({})
        self._pump(broker)

    def _responder(self, broker: DataBroker, answer: Respond) -> Callable[[ShareFetchResponse], None]:
        """The callback that answers a request; if the broker fails first, the member's connection breaks."""
        self._request_id += 1
        request_id = self._request_id

        def respond(response: ShareFetchResponse) -> None:
            if broker.on_lost.pop(request_id, None) is not None:
                answer(response, None)

        broker.on_lost[request_id] = lambda: answer(None, ErrorCode.REQUEST_TIMED_OUT)
        return respond

    def _fetch(
        self,
        broker: DataBroker,
        process: Process,
        request: ShareFetchRequest,
        partitions: tuple[TopicPartition, ...],
        on_done: Callable[[Acquired], None],
    ) -> None:
        found = [self._served(broker, request.group_id, at) for at in partitions]
        fetch = DelayedShareFetch(
            process,
            request,
            self._groups[request.group_id].isolation_level == "read_committed",
            tuple(served for served in found if served is not None),
            self._loop.now_ms + request.max_wait_ms,
            on_done,
        )
        self._fetches.fetch(broker, fetch)

    def data_changed(self) -> None:
        """The rate of the data has changed: fetches that wait for records compute again when those come."""
        for broker in self._brokers.values():
            self._fetches.check_all(broker)

    def _records_came(self, at: TopicPartition) -> None:
        """A broker itself added records to a partition, which no rate shows."""
        for broker in self._brokers.values():
            self._fetches.check_all(broker, at)

    def _check(self, broker: DataBroker, served: Served) -> None:
        """Records of a share partition may be available: fetches that wait for it try again."""
        self._fetches.check(broker, served.group_id, served.at)

    def _disconnected(self, process: Process, member_id: str) -> None:
        """A member's connections broke: brokers release the records that it had acquired
        (ClientConnectionDisconnectListener).
        """
        for broker in self._brokers.values():
            if broker.sessions.pop((process.group_id, member_id), None) is not None:
                self._release_all(broker, process.group_id, member_id)
                self._pump(broker)

    # --- share partitions ---

    def _served(self, broker: DataBroker, group_id: str, at: TopicPartition) -> Served | None:
        """The share partition, started if necessary; None if another broker leads it."""
        if self._cluster.data_leader(at) != broker.broker_id or not self._topics.exists(at):
            return None
        served = broker.served.get((group_id, at))
        if served is None:
            config = self._config(group_id, self._leader_epoch(at, broker.broker_id))
            key = SharePartitionKey(group_id, self._topics.topic_id(at.topic), at.partition)
            served = broker.served[group_id, at] = Served(group_id, at, key, SharePartition(config))
        if not served.partition.is_active:
            self._start(broker, served)
        return served

    def _move_log_start(self, served: Served) -> None:
        """The log start offset may have moved: records below it are archived."""
        start_offset = self._topics.start_offset(served.at, self._loop.now_ms)
        if start_offset > served.partition.start_offset:
            for given_up in undelivered_below(served.partition, start_offset):
                self._record_archived(served, given_up, "RETENTION")
            update_log_start_offset(served.partition, start_offset)
            served.seen_start_offset = served.partition.start_offset

    def _on_acquired(self, broker: DataBroker, served: Served, process: Process, records: AcquiredRecords) -> None:
        self._record("deliveries", served, process, records._asdict())
        self._watch_locks(broker, served)

    def _start(self, broker: DataBroker, served: Served) -> None:
        def reset_offset() -> int:
            now_ms = self._loop.now_ms
            reset = self._groups[served.group_id].auto_offset_reset
            if reset == "latest":
                return self._topics.end_offset(served.at, now_ms)
            start_offset = self._topics.start_offset(served.at, now_ms)
            back_ms = reset_duration_ms(reset)
            if back_ms is None:
                return start_offset
            return max(start_offset, self._topics.end_offset(served.at, now_ms - back_ms))

        def on_done(error_class: str | None) -> None:
            if broker.is_gone:
                return
            if error_class is not None:
                broker.served.pop((served.group_id, served.at), None)
            served.seen_start_offset = served.partition.start_offset
            self._note_state(broker, served, "its state is read" if error_class is None else error_class)
            self._check(broker, served)

        try:
            broker.persister.read_into(served.partition, served.key, reset_offset, on_done)
        except NotInitialized:
            return
        self._note_state(broker, served, "first fetch")

    def _leader_epoch(self, at: TopicPartition, broker_id: int) -> int:
        leader, epoch = self._leader_epochs.get(at, (broker_id, 0))
        if leader != broker_id:
            epoch += 1
        self._leader_epochs[at] = (broker_id, epoch)
        return epoch

    def _acknowledge(
        self,
        broker: DataBroker,
        process: Process,
        request: ShareFetchRequest,
        at: TopicPartition,
        batches: tuple[AcknowledgementBatch, ...],
        on_done: Callable[[str | None], None],
    ) -> None:
        served = broker.served.get((request.group_id, at))

        def done(error_class: str | None) -> None:
            if served is not None:
                for batch in batches:
                    names = [AcknowledgeType(kind).name for kind in batch.acknowledge_types]
                    facts = {"first_offset": batch.first_offset, "last_offset": batch.last_offset}
                    self._record(
                        "acknowledgements", served, process, {**facts, "acknowledge_type": names, "error": error_class}
                    )
                self._drop_if_fenced(broker, served, error_class)
            on_done(error_class)

        if served is None or not served.partition.is_active:
            done("NotLeaderOrFollowerException")
            return
        try:
            write = acknowledge(served.partition, request.member_id, batches, self._loop.now_ms)
        except RefusedRequest as refused:
            done(refused.error_class)
            return
        given_up = {
            offset: GIVEN_UP[batch.acknowledge_types]
            for batch in batches
            if batch.acknowledge_types in GIVEN_UP
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        self._persist(broker, served, write, done, given_up)
        self._check(broker, served)

    def _persist(
        self,
        broker: DataBroker,
        served: Served,
        write: WriteState | None,
        on_done: Callable[[str | None], None] = lambda error_class: None,
        given_up: Mapping[int, str] | None = None,
    ) -> None:
        if write is None:
            on_done(None)
            return

        def written(error_class: str | None) -> None:
            if error_class is None:
                self._record_write(served, write, given_up or {})
            if broker.is_gone:
                return
            on_done(error_class)
            has_moved = served.partition.start_offset != served.seen_start_offset
            served.seen_start_offset = served.partition.start_offset
            if has_moved and write.cause is not WriteCause.LOCK_TIMEOUT:
                # Only then: records that were released without moving the start offset wait for another trigger.
                self._check(broker, served)

        broker.persister.write_of(served.partition, served.key, write, written)

    def _release_all(self, broker: DataBroker, group_id: str, member_id: str) -> None:
        """The member's session ends: the records that it had acquired are available again."""
        for served in tuple(broker.served.values()):
            if served.group_id == group_id and served.partition.is_active:
                on_done = partial(self._drop_if_fenced, broker, served)
                self._persist(broker, served, release(served.partition, member_id), on_done)
                self._check(broker, served)

    # --- locks ---

    def _watch_locks(self, broker: DataBroker, served: Served) -> None:
        deadline_ms = next_deadline_ms(served.partition)
        if deadline_ms is not None and (served.deadline_ms is None or deadline_ms < served.deadline_ms):
            served.deadline_ms = deadline_ms
            self._loop.at(deadline_ms, self._expire_locks, broker, served, deadline_ms)

    def _expire_locks(self, broker: DataBroker, served: Served, deadline_ms: int) -> None:
        if broker.is_gone or served.deadline_ms != deadline_ms:
            return
        served.deadline_ms = None
        while (expired := expire_lock(served.partition, self._loop.now_ms)) is not None:
            lock, write = expired
            for batch in () if write is None else write.state_batches:
                # Not the whole range of the lock: the member has acknowledged the rest.
                facts = {"first_offset": batch.first_offset, "last_offset": batch.last_offset}
                self._record("lock_timeouts", served, None, {**facts, "member_id": lock.member_id})
            self._persist(broker, served, write)
            if write is not None:
                self._check(broker, served)
        self._watch_locks(broker, served)
        self._pump(broker)

    # --- dead letters ---

    def _copy_due(self, broker: DataBroker, served: Served) -> None:
        """Copy the records that were persisted as ARCHIVING; they become ARCHIVED when that is done."""
        for copy in take_copies(served.partition):
            topic = self._groups[served.group_id].dead_letter_topic
            assert topic is not None
            on_done = partial(self._copied, broker, served, copy.copy_id)
            broker.letters.copy(topic, served.group_id, served.at, copy, on_done)

    def _copied(self, broker: DataBroker, served: Served, copy_id: int) -> None:
        # A former leader of the partition leaves it as it is: the next leader continues.
        if broker.served.get((served.group_id, served.at)) is served:
            self._persist(broker, served, complete_copy(served.partition, copy_id))
            self._pump(broker)

    # --- the persister's network ---

    def _broker(self, broker_id: int) -> DataBroker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            draws = stream(self._seed, "persister", broker_id)
            persister = Persister(self._share_leader, draws.random)
            lookup_draws = stream(self._seed, "share-lookup", broker_id)
            letter_draws = stream(self._seed, "dead-letters", broker_id)
            letters = DeadLetterSender(
                self._cluster, self._loop, self._topics, self.dead_letters, self._truth, letter_draws
            )
            broker = self._brokers[broker_id] = DataBroker(broker_id, persister, lookup_draws, letters)
        return broker

    def _share_leader(self, key: SharePartitionKey) -> int | None:
        return self._cluster.shares.leader(share_partition_partition(key, len(self._cluster.shares.logs)))

    def _find(self, broker: DataBroker, key: SharePartitionKey) -> int | ErrorCode:
        """FindCoordinator for a share partition, sent to any broker (PersisterStateManager)."""
        nodes = self._cluster.nodes()
        request = FindCoordinatorRequest(CoordinatorType.SHARE, (key.as_coordinator_key(),))
        node_id = least_loaded_node([NodeLoad(node_id) for node_id in nodes], broker.draws.random())
        asked = None if node_id is None else (node_id, request, key.group_id, broker.broker_id)
        answers = None if asked is None else self._cluster.find_coordinators(*asked)
        if not answers:
            return ErrorCode.NETWORK_EXCEPTION
        return answers[0].error_code or answers[0].node.node_id

    def _pump(self, broker: DataBroker) -> None:
        """Send the requests of the persister, and schedule its next retry."""
        for request in broker.persister.requests():
            if isinstance(request, Lookup):
                answer = self._find(broker, request.key)
                self._loop.after(2 * INTERNAL_MS, self._on_lookup, broker, request.request_id, answer)
            else:
                self._loop.after(INTERNAL_MS, self._send_to_coordinator, broker, request)
        deadline_ms = broker.persister.next_deadline_ms()
        if deadline_ms is not None and (broker.retry_ms is None or deadline_ms < broker.retry_ms):
            broker.retry_ms = deadline_ms
            self._loop.at(deadline_ms, self._retry, broker, deadline_ms)

    def _retry(self, broker: DataBroker, deadline_ms: int) -> None:
        if broker.retry_ms == deadline_ms and not broker.is_gone:
            broker.retry_ms = None
            broker.persister.advance(self._loop.now_ms)
            self._pump(broker)

    def _on_lookup(self, broker: DataBroker, request_id: int, answer: int | ErrorCode) -> None:
        if not broker.is_gone:
            broker.persister.on_lookup(request_id, answer, self._loop.now_ms)
            self._pump(broker)

    def _send_to_coordinator(self, broker: DataBroker, request: PersisterSend) -> None:
        """Turn one request of the persister into one operation for each share partition; the response waits for all of
        them.
        """
        exchange, group_id = self._cluster.exchange, request.request.group_id
        number = exchange.asked(
            group_id, broker.broker_id, request.node_id, request.request, operation=request.operation
        )

        def respond(response: Response | None) -> None:
            error = ErrorCode.NETWORK_EXCEPTION if response is None else None
            exchange.answered(number, response, error)
            self._loop.after(INTERNAL_MS, self._on_response, broker, request.request_id, error or response)

        if request.node_id not in self._cluster.alive:
            respond(None)
            return
        parts = partition_requests(request.operation, request.request, len(self._cluster.shares.logs), count())
        results: dict[int, Any] = {}
        topic_ids = [topic.topic_id for topic in request.request.topics for _ in topic.partitions]
        is_lost = False

        def on_answer(index: int, answer: Answer) -> None:
            results[index] = result_of(parts[index][1], answer)
            if exchange.is_watching:
                key = parts[index][1].message.key
                name = f"{self._topics.name_of(key.topic_id)}-{key.partition}"
                why = f"{api_of(request.request, request.operation)} of broker-{broker.broker_id}"
                exchange.persisted(group_id, name, self._cluster.share_partitions().get(key), why)
            if len(results) == len(parts) and not is_lost:
                by_topic: dict[str, list[Any]] = {}
                for place in range(len(parts)):
                    by_topic.setdefault(topic_ids[place], []).append(results[place])
                topics = tuple(TopicResult(topic_id, tuple(of_topic)) for topic_id, of_topic in by_topic.items())
                respond(Response(topics))

        def on_lost() -> None:
            nonlocal is_lost
            if not is_lost:
                is_lost = True
                respond(None)

        for index, (partition, part) in enumerate(parts):
            self._cluster.ask(
                self._cluster.shares,
                partition,
                request.node_id,
                part.operation,
                part.message,
                partial(on_answer, index),
                on_lost,
            )

    def _on_response(self, broker: DataBroker, request_id: int, answer: Response | ErrorCode) -> None:
        """A broker that is gone does not learn of it, but the truth does: what was written is in the log."""
        broker.persister.on_response(request_id, answer, self._loop.now_ms)
        if not broker.is_gone:
            for served in tuple(broker.served.values()):
                self._watch_locks(broker, served)
                self._copy_due(broker, served)
            self._pump(broker)

    def settle(self) -> None:
        """Deliver the responses of the share coordinators, so that the truth has each write that is in their log."""
        self._loop.run_pending(self._on_response)

    def _on_broker_gone(self, broker_id: int) -> None:
        """The broker's state of share groups is lost, and other brokers lead its partitions."""
        broker = self._brokers.pop(broker_id, None)
        if broker is not None:
            broker.is_gone = True
            for served in broker.served.values():
                self._note_state(broker, served, "the broker fails")
            broker.letters.stop()
            for on_lost in broker.on_lost.values():
                on_lost()

    def _lead_again(self) -> None:
        """The leaders of the data have changed: a broker fences the share partitions that it no longer leads."""
        for broker in self._brokers.values():
            for place, served in tuple(broker.served.items()):
                if self._cluster.data_leader(served.at) != broker.broker_id:
                    self._drop(broker, place, "another broker leads")

    def topic_deleted(self, topic: str) -> None:
        """Leaders drop the share partitions of a deleted topic (SharePartitionListener.onDeleted)."""
        for broker in self._brokers.values():
            for place in [place for place in broker.served if place[1].topic == topic]:
                self._drop(broker, place, "its topic is deleted")

    def _drop(self, broker: DataBroker, place: tuple[str, TopicPartition], why: str) -> None:
        """A broker no longer serves a share partition."""
        served = broker.served.pop(place)
        fence(served.partition)
        self._note_state(broker, served, why)

    def _drop_if_fenced(self, broker: DataBroker, served: Served, error_class: str | None) -> None:
        place = served.group_id, served.at
        if error_class in FENCING and broker.served.get(place) is served:
            self._drop(broker, place, error_class or "")

    def _note_state(self, broker: DataBroker, served: Served, why: str) -> None:
        name = f"{served.at.topic}-{served.at.partition} on broker-{broker.broker_id}"
        self._cluster.exchange.moved(
            served.group_id, SHARE_PARTITION, name, None if broker.is_gone else served.partition.partition_state, why
        )

    # --- truth ---

    def _record(self, file: str, served: Served, process: Process | None, facts: dict[str, Any]) -> None:
        line = {"group": served.group_id, "topic": served.at.topic, "partition": served.at.partition}
        if process is not None:
            line["client_id"] = process.client_id
        self._truth.record(file, self._loop.now_ms, {**line, **facts})

    def _record_write(self, served: Served, write: WriteState, given_up: Mapping[int, str]) -> None:
        """Record the persisted state; the records that are ARCHIVED or ARCHIVING in it were given up for good."""
        batches = [
            [batch.first_offset, batch.last_offset, RecordState(batch.delivery_state).name, batch.delivery_count]
            for batch in write.state_batches
        ]
        facts = {"start_offset": write.start_offset, "cause": write.cause.value, "state_batches": batches}
        self._record("share_writes", served, None, facts)
        for batch in write.state_batches:
            # Records that become ARCHIVED after their copy were given up before.
            is_given_up = batch.delivery_state in GIVEN_UP_STATES and write.cause is not WriteCause.DEAD_LETTER
            if is_given_up:
                why = given_up.get(batch.first_offset, "DELIVERY_LIMIT")
                is_below_limit = batch.delivery_count < served.partition.config.delivery_count_limit
                if why == "DELIVERY_LIMIT" and (is_below_limit or batch.last_offset < write.start_offset):
                    # It was acquired when retention deleted it, and was released since: no member gets it again,
                    # whatever its count.
                    why = "RETENTION"
                self._record_archived(served, batch, why)

    def _record_archived(self, served: Served, records: Undelivered | StateBatch, why: str) -> None:
        facts = {"first_offset": records.first_offset, "last_offset": records.last_offset, "why": why}
        self._record("archived", served, None, {**facts, "delivery_count": records.delivery_count})
