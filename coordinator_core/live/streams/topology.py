"""Checks an application's topology against the topics of the cluster: tasks, internal topics, missing topics.

A topology names source topics, which have to exist, and internal topics, which are created for it: repartition topics
between subtopologies and changelog topics of state stores. The number of their partitions follows from the source
topics. A subtopology has as many tasks as its largest input topic has partitions.

Source: InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics. Kafka iterates over hash
maps there; if there are several problems, the order decides which of them is reported, so it is emulated.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from coordinator_core.errors import CoreError
from coordinator_core.live.coordinator.errors import Refused
from coordinator_core.live.coordinator.image import MetadataImage
from coordinator_core.live.streams.messages import CreatableTopic, CreatableTopicConfig, Status, StatusCode
from coordinator_core.replay.java.hash_codes import string_hash_code, string_order
from coordinator_core.replay.java.hash_map import HashMap, in_hash_order
from coordinator_core.replay.streams.state import CopartitionGroup, InternalTopic, Subtopology, Topology
from schemas.error_codes import ErrorCode

TOPICS_SHOWN_MAX: Final = 3
"""How many names a status lists; for the others it has only their number."""


class TopicsMisconfigured(CoreError):
    """The topics of the cluster do not fit the topology (TopicConfigurationException): members get a status."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = Status(code, detail)
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology with partition counts for its topics. Internal topics are by name."""

    task_count: int
    input_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, InternalTopic]
    state_changelog_topics: Mapping[str, InternalTopic]
    is_stateful: bool


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology that was checked against the cluster (ConfiguredTopology). It is ready if there is no problem."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, ascending; None if the source topics themselves do not fit."""
    creatable_topics: tuple[CreatableTopic, ...] = ()
    """Missing internal topics."""
    problem: Status | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


def configure_topology(topology: Topology, image: MetadataImage) -> ConfiguredTopology:
    """Check a topology against the cluster (InternalTopicManager.configureTopics).

    Raises Refused for a topology that cannot fit any cluster: one whose repartition topics depend on each other in a
    cycle, or which reads no topics.
    """
    copartitioned = [
        _copartitioned_topics(subtopology, group)
        for subtopology in topology.in_hash_order()
        for group in subtopology.copartition_groups
    ]
    try:
        _check_source_topics(topology, image)
        counts = _PartitionCounts(image)
        counts.decide(_repartition_counts(topology, image))
        for topics in copartitioned:
            counts.decide(_copartitioned_counts(topology, topics, counts))
        counts.decide(_changelog_counts(topology, counts))
        subtopologies = {
            subtopology.subtopology_id: _configured(subtopology, counts)
            for subtopology in sorted(topology.subtopologies, key=lambda found: string_order(found.subtopology_id))
        }
        missing = _missing_internal_topics(topology, subtopologies, image)
    except TopicsMisconfigured as misconfigured:
        return ConfiguredTopology(topology.epoch, None, problem=misconfigured.status)
    problem = None
    if missing:
        detail = f"Internal topics are missing: {_summary(topic.name for topic in missing)}"
        problem = Status(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return ConfiguredTopology(topology.epoch, subtopologies, tuple(map(_creatable, missing)), problem)


class _PartitionCounts:
    """Partition counts of topics: of those in the cluster, else of internal topics decided so far."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self.decided: dict[str, int] = {}

    def decide(self, counts: Mapping[str, int]) -> None:
        self.decided.update(counts)

    def get(self, topic: str) -> int:
        known = self._image.topics.get(topic)
        count = self.decided.get(topic) if known is None else known.partition_count
        if count is None:
            raise _failure(f"Number of partitions is not set for topic: {topic}")
        return count


def _check_source_topics(topology: Topology, image: MetadataImage) -> None:
    wanted = {topic for subtopology in topology.subtopologies for topic in subtopology.source_topics}
    missing = sorted((topic for topic in wanted if topic not in image.topics), key=string_order)
    if missing:
        text = f"Source topics {_summary(missing)} are missing."
        raise TopicsMisconfigured(StatusCode.MISSING_SOURCE_TOPICS, text)


# --- partition counts of internal topics ---


def _repartition_counts(topology: Topology, image: MetadataImage) -> dict[str, int]:
    """Unless specified, a repartition topic has as many partitions as the largest topic of the subtopology that writes
    it.
    """
    subtopologies = topology.in_hash_order()
    counts = {
        topic.name: topic.partition_count
        for subtopology in subtopologies
        for topic in subtopology.repartition_source_topics
        if topic.partition_count
    }
    is_undecided = True
    while is_undecided:
        is_undecided = has_progress = False
        for subtopology in subtopologies:
            for topic_name in subtopology.repartition_sink_topics:
                if topic_name in counts:
                    continue
                count = _widest_known(subtopology, counts, image)
                if count is None:
                    is_undecided = True
                else:
                    counts[topic_name] = count
                    has_progress = True
        if is_undecided and not has_progress:
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
                "that cannot be resolved."
            )
    if any(topic.name not in counts for found in subtopologies for topic in found.repartition_source_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    return counts


def _widest_known(subtopology: Subtopology, counts: Mapping[str, int], image: MetadataImage) -> int | None:
    """The largest known partition count of the input topics; others may turn out larger, which Kafka ignores."""
    internal = (counts.get(topic.name) for topic in subtopology.repartition_source_topics)
    external = (known.partition_count for name in subtopology.source_topics if (known := image.topics.get(name)))
    return max((count for count in (*internal, *external) if count is not None), default=None)


def _copartitioned_topics(subtopology: Subtopology, group: CopartitionGroup) -> list[str]:
    """Names of a group's topics, in the order of a HashSet of them."""
    lists = (
        (group.source_topics, subtopology.source_topics),
        (group.repartition_source_topics, [topic.name for topic in subtopology.repartition_source_topics]),
    )
    for indices, topics in lists:
        if any(not 0 <= index < len(topics) for index in indices):
            raise _failure("A copartition group names a topic which the subtopology does not have.")
    names = [topics[index] for indices, topics in lists for index in indices]
    return in_hash_order(names, string_hash_code)


def _copartitioned_counts(topology: Topology, topics: list[str], counts: _PartitionCounts) -> dict[str, int]:
    """Repartition topics of a group follow its source topics, otherwise those that specify a count."""
    sources = [topic for found in topology.subtopologies for topic in found.repartition_source_topics]
    internal = {topic.name for topic in sources}
    fixed = {topic.name for topic in sources if topic.partition_count}
    repartition = {topic: counts.get(topic) for topic in topics if topic in internal}
    others = {topic: counts.get(topic) for topic in topics if topic not in internal}
    if not topics:
        return {}
    if others:
        wanted = _one_count(others.values(), others)
    elif fixed:
        wanted = _one_count([counts.get(name) for name in fixed], repartition)
    else:
        wanted = max(repartition.values())
        if wanted == 0:
            raise _invalid(f"All topics in the copartition group had undefined partition number: [{', '.join(topics)}]")
    for name, count in repartition.items():
        if name in fixed and count != wanted:
            raise _incorrectly_partitioned(
                f"Number of partitions [{count}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{wanted}] of the source topic."
            )
    return dict.fromkeys(repartition, wanted)


def _one_count(found: Iterable[int], shown: Mapping[str, int]) -> int:
    """The common count. If counts differ, the error lists these topics."""
    distinct = set(found)
    if len(distinct) > 1:
        pairs = ", ".join(f"{name}={shown[name]}" for name in sorted(shown, key=string_order))
        raise _incorrectly_partitioned(f"Following topics do not have the same number of partitions: [{{{pairs}}}]")
    return distinct.pop()


def _changelog_counts(topology: Topology, counts: _PartitionCounts) -> dict[str, int]:
    """A changelog topic has one partition for each task."""
    decided = {}
    for subtopology in topology.in_hash_order():
        task_count = _task_count(subtopology, counts)
        decided.update({topic.name: task_count for topic in subtopology.state_changelog_topics})
    return decided


def _task_count(subtopology: Subtopology, counts: _PartitionCounts) -> int:
    if not subtopology.input_topics:
        raise _invalid(f"No source topics found for subtopology {subtopology.subtopology_id}")
    return max(counts.get(topic) for topic in subtopology.input_topics)


# --- existing and missing topics ---


def _configured(subtopology: Subtopology, counts: _PartitionCounts) -> ConfiguredSubtopology:
    def with_count(topic: InternalTopic) -> InternalTopic:
        return replace(topic, partition_count=topic.partition_count or counts.decided[topic.name])

    return ConfiguredSubtopology(
        _task_count(subtopology, counts),
        subtopology.input_topics,
        {topic.name: with_count(topic) for topic in subtopology.repartition_source_topics},
        {topic.name: with_count(topic) for topic in subtopology.state_changelog_topics},
        bool(subtopology.state_changelog_topics),
    )


def _missing_internal_topics(
    topology: Topology, subtopologies: Mapping[str, ConfiguredSubtopology], image: MetadataImage
) -> list[InternalTopic]:
    """Internal topics that the cluster lacks, in the order of a HashMap. Raises TopicsMisconfigured if an existing
    one does not fit.
    """
    missing: HashMap[str, InternalTopic] = HashMap(string_hash_code)
    for subtopology in subtopologies.values():
        for topics in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
            for name in in_hash_order(topics, string_hash_code):
                missing[name] = topics[name]
    required = [
        name
        for found in topology.in_hash_order()
        for name in (*found.input_topics, *(topic.name for topic in found.state_changelog_topics))
    ]
    for name in in_hash_order(required, string_hash_code):
        known = image.topics.get(name)
        expected = missing.get(name)
        if known is None or expected is None:
            continue
        del missing[name]
        if known.partition_count != expected.partition_count:
            raise _incorrectly_partitioned(
                f"Existing topic {name} has different number of partitions: expected {expected.partition_count}, "
                f"found {known.partition_count}"
            )
    return [missing[name] for name in missing]


def _creatable(topic: InternalTopic) -> CreatableTopic:
    configs = dict(topic.configs)
    return CreatableTopic(
        topic.name,
        topic.partition_count,
        topic.replication_factor or -1,
        configs=tuple(CreatableTopicConfig(name, configs[name]) for name in in_hash_order(configs, string_hash_code)),
    )


def _summary(topics: Iterable[str]) -> str:
    names = list(topics)
    others = len(names) - TOPICS_SHOWN_MAX
    shown = ", ".join(names[:TOPICS_SHOWN_MAX])
    return f"{shown} and {others} additional topics" if others > 0 else shown


def _incorrectly_partitioned(detail: str) -> TopicsMisconfigured:
    return TopicsMisconfigured(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _invalid(text: str) -> Refused:
    return Refused(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)


def _failure(text: str) -> Refused:
    """For an exception in Kafka that has no error code for clients."""
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, text)
