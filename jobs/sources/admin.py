"""Admin requests to a cluster: topics, configs, groups, committed offsets, and share states.

Each request goes to the broker that can answer it: about a group, to the leader of its partition of
`__consumer_offsets`; about a share partition, to the leader of its partition of `__share_group_state`; about a broker's
own configs, to that broker. A coordinator that is loading, or that moved, is asked again until the time-out. Where a
broker refuses to answer, the result is a `Refusal`, never an answer that looks empty.

Nothing here writes. ReadShareGroupState is sent with the leader epoch that the share coordinator itself reports, which
writes no record; a higher one would (ShareCoordinatorShard.readStateAndMaybeUpdateLeaderEpoch). Nor would -1, but
brokers before 4.3 fence it, and 4.4 refuses it.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kafka.protocol.admin import DescribeConfigsRequest, ListConfigResourcesRequest, ListGroupsRequest
from kafka.protocol.metadata import MetadataRequest

from coordinator_core.history.simple_log import is_kept_config
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.text import counted
from jobs.errors import BrokerError
from jobs.sources.admin_answers import (
    CONFIG_SOURCES,
    UNANSWERED,
    UNREADABLE,
    UNSUPPORTED,
    CommittedOffset,
    Config,
    GroupDescription,
    ListedGroup,
    Refusal,
    ShareOffset,
    ShareState,
    Topic,
    TopicPartitionId,
)
from jobs.sources.admin_questions import (
    COMMITTED_OFFSETS,
    DESCRIPTIONS,
    GROUP_ID_NOT_FOUND,
    RESOURCES_AT_ONCE,
    SHARE_OFFSETS,
    Answer,
    Item,
    Question,
    chunks,
    is_not_ready,
    share_states_of,
)
from jobs.sources.broker import OLD_BROKER, UNREAD_ANSWER, Broker, Deadline, error_name, topic_id_of
from schemas.cluster_metadata import ConfigResourceType
from schemas.group_types import GroupType

GROUP_CONFIGS_SINCE: Final = 13
"""A Metadata version that brokers support since 4.0. Earlier brokers refuse a whole DescribeConfigs request that
names a group, and log an error; the versions of DescribeConfigs itself do not show whether a broker has group
configs."""
METADATA_VERSION_MIN: Final = 4
"""From this version on a Metadata request creates no topic (Kafka 0.11)."""


class Admin:
    """Sends Admin requests through a connection that the caller owns."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    # --- metadata and configs

    def topics(self, names: Collection[str] | None = None) -> dict[str, Topic]:
        """Topics by name; without `names` all of them.

        Topics that do not exist, or that the principal may not see, are left out.
        """
        return {
            it.name: Topic(it.name, topic_id_of(it.topic_id), len(it.partitions))
            for it in self._metadata(names).topics
            if it.error_code == 0
        }

    def refused_topics(self, names: Collection[str]) -> dict[str, Refusal]:
        """Those of these topics that the principal may not describe, with the reason."""
        return {it.name: Refusal.of(it.error_code) for it in self._metadata(names).topics if it.error_code}

    def broker_ids(self) -> tuple[int, ...]:
        """Node ids of the cluster's brokers."""
        return tuple(sorted(it.node_id for it in self._metadata(()).brokers))

    def configs(
        self, *, group_ids: Collection[str] = (), topics: Collection[str] = (), broker_ids: Collection[int] = ()
    ) -> tuple[list[Config], dict[tuple[str, str], Refusal]]:
        """The effective configs of groups, topics and brokers, and what was refused, by (resource type, name).

        Only configs that silver.configs keeps: other broker configs may contain secrets.
        """
        of_cluster = {
            ConfigResourceType.GROUP: sorted(group_ids) if self.has_group_configs else [],
            ConfigResourceType.TOPIC: sorted(topics),
        }
        asked: list[tuple[int | None, list[tuple[ConfigResourceType, str]]]] = []
        for resource_type, names in of_cluster.items():
            asked += [(None, [(resource_type, name) for name in part]) for part in chunks(names, RESOURCES_AT_ONCE)]
        asked += [(node_id, [(ConfigResourceType.BROKER, str(node_id))]) for node_id in sorted(broker_ids)]
        found: list[Config] = []
        refused: dict[tuple[str, str], Refusal] = {}
        resource = DescribeConfigsRequest.DescribeConfigsResource
        for node_id, resources in asked:
            request = DescribeConfigsRequest(
                resources=[
                    resource(resource_type=int(kind), resource_name=name, configuration_keys=None)
                    for kind, name in resources
                ],
                include_synonyms=False,
                include_documentation=False,
                min_version=1,
            )
            for result in self._broker.send(request, node_id).results:
                kind = ConfigResourceType(result.resource_type).name
                if result.error_code:
                    refused[kind, result.resource_name] = Refusal.of(result.error_code)
                    continue
                found += (
                    Config(
                        kind,
                        result.resource_name,
                        it.name,
                        None if it.is_sensitive else it.value,
                        CONFIG_SOURCES.get(it.config_source, "UNKNOWN"),
                    )
                    for it in result.configs
                    if is_kept_config(it.name)
                )
        return found, refused

    @property
    def has_group_configs(self) -> bool:
        """Does this cluster support group configs?"""
        return GROUP_CONFIGS_SINCE in self._broker.api_versions(MetadataRequest.API_KEY)

    def configured_groups(self) -> tuple[str, ...] | Refusal:
        """Groups with configs of their own; a Refusal where the broker does not support the request (4.0)."""
        if not self.has_group_configs:
            return ()
        request = ListConfigResourcesRequest(resource_types=[int(ConfigResourceType.GROUP)], min_version=1)
        try:
            response = self._broker.send(request)
        except BrokerError as error:
            if error.code != OLD_BROKER:
                raise
            return replace(UNSUPPORTED, detail=str(error))
        if response.error_code:
            return Refusal.of(response.error_code)
        return tuple(sorted(it.resource_name for it in response.config_resources))

    # --- groups

    def list_groups(self) -> dict[str, ListedGroup]:
        """All groups, of every type and state, that this principal may describe. Raises BrokerError."""
        groups: dict[str, ListedGroup] = {}
        for node_id in self.broker_ids():
            response = self._broker.send(ListGroupsRequest(min_version=0), node_id, error_code=lambda it: it.error_code)
            if response.error_code:
                name = error_name(response.error_code)
                raise BrokerError(f"broker {node_id} does not list its groups: {name}", code=name)
            for it in response.groups:
                groups[it.group_id] = ListedGroup(
                    it.group_id, (it.group_type or "").upper(), it.protocol_type or "", it.group_state or ""
                )
        return groups

    def describe_groups(self, groups: Mapping[str, str]) -> dict[str, GroupDescription | Refusal]:
        """Describe groups, given with their listed type; a group whose type changed since is looked up under the other
        types. A group that does not exist is refused as GROUP_ID_NOT_FOUND.
        """
        described: dict[str, GroupDescription | Refusal] = {}
        for group_type, question in DESCRIPTIONS.items():
            of_type = [name for name, its_type in groups.items() if (its_type or GroupType.CLASSIC) == group_type]
            answered = self._answers(question, of_type)
            described.update(answered)
        for group_type, question in DESCRIPTIONS.items():
            lost = [
                name
                for name, its_type in groups.items()
                if (its_type or GroupType.CLASSIC) != group_type
                and isinstance(answer := described[name], Refusal)
                and answer.code == GROUP_ID_NOT_FOUND
            ]
            found = self._answers(question, lost)
            described.update(
                (name, answer)
                for name, answer in found.items()
                if isinstance(answer, GroupDescription) or answer == UNREADABLE
            )
        return described

    def committed_offsets(
        self, group_ids: Collection[str]
    ) -> dict[str, dict[tuple[str, int], CommittedOffset] | Refusal]:
        """Committed offsets by (topic, partition), by group.

        Topics that this principal may not describe are missing: see `refused_topics`.
        """
        return self._answers(COMMITTED_OFFSETS, group_ids)

    def share_offsets(
        self, group_ids: Collection[str]
    ) -> dict[str, dict[TopicPartitionId, ShareOffset | Refusal] | Refusal]:
        """Start offsets of all share partitions of share groups, by group."""
        return self._answers(SHARE_OFFSETS, group_ids)

    def share_states(
        self, keys: Collection[SharePartitionKey], leader_epochs: Mapping[SharePartitionKey, int] | None = None
    ) -> dict[SharePartitionKey, ShareState | Refusal]:
        """The states that the share coordinator keeps of share partitions. Needs ClusterAction on the cluster.

        `leader_epochs`: only those that the coordinator itself returned (`share_offsets`); -1 is sent where there is
        none.
        """
        return self._answers(share_states_of(leader_epochs or {}), keys)

    # --- internals

    def _metadata(self, names: Collection[str] | None) -> Any:
        topic = MetadataRequest.MetadataRequestTopic
        asked = None if names is None else [topic(name=name) for name in sorted(names)]
        return self._broker.send(
            MetadataRequest(topics=asked, allow_auto_topic_creation=False, min_version=METADATA_VERSION_MIN)
        )

    def _answers(self, question: "Question[Item, Answer]", items: Collection[Item]) -> dict[Item, Answer | Refusal]:
        """Ask the coordinator of each item, and retry those that are not ready. Raises BrokerError on time-out."""
        answers: dict[Item, Answer | Refusal] = {}
        if not items:
            return answers
        count = self._partition_count(question.topic)
        deadline = Deadline(self._broker.timeout_ms)
        waiting = list(items)
        while waiting:
            by_leader: dict[int, list[Item]] = defaultdict(list)
            for item in waiting:
                partition = question.partition_of(item, count)
                by_leader[self._broker.leader(question.topic, partition, deadline=deadline).node_id].append(item)
            waiting = []
            for node_id, of_leader in by_leader.items():
                for part in question.parts(of_leader):
                    answered = self._ask(question, part, node_id)
                    waiting += (item for item, answer in answered.items() if is_not_ready(answer))
                    answers |= answered
            if waiting and not deadline.back_off():
                refusal = answers[waiting[0]]
                assert isinstance(refusal, Refusal)
                raise BrokerError(
                    f"{len(waiting)} of {counted(len(items), 'question')} to coordinators not answered within "
                    f"{self._broker.timeout_ms} ms ({refusal.name}): they may load {question.topic} still; try later",
                    code=refusal.name,
                )
            if waiting:
                self._broker.forget_leaders(question.topic)
        return answers

    def _ask(
        self, question: "Question[Item, Answer]", part: Sequence[Item], node_id: int
    ) -> dict[Item, Answer | Refusal]:
        try:
            response = self._broker.send(question.request(part), node_id)
        except BrokerError as error:
            if error.code == UNREAD_ANSWER:
                # perhaps only one item causes that
                if len(part) == 1:
                    return {part[0]: replace(UNREADABLE, detail=str(error))}
                return {item: answer for it in part for item, answer in self._ask(question, [it], node_id).items()}
            if error.code != OLD_BROKER:
                raise
            if question.older is None:
                return dict.fromkeys(part, replace(UNSUPPORTED, detail=str(error)))
            return {
                item: answer
                for smaller in question.older.parts(part)
                for item, answer in self._ask(question.older, smaller, node_id).items()
            }
        answered: dict[Item, Answer | Refusal] = {}
        for item, answer in question.read(part, response):
            # in Kafka 4.0 each group's coordinator is asked about all groups: one of them knows a group, the others
            # refuse
            if isinstance(answered.get(item, UNANSWERED), Refusal):
                answered[item] = answer
        return {item: answered.get(item, UNANSWERED) for item in part}

    def _partition_count(self, topic: str) -> int:
        found = self._broker.topics([topic])
        if topic not in found:
            raise BrokerError(f"there is no topic {topic}: nobody used its coordinators yet", code="UNKNOWN_TOPIC")
        return found[topic].partition_count
