"""The coordinator's view of topics (MetadataImage): names, ids and partition counts."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from immutables import Map


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster. `topic_id` is Kafka's 22-character text."""

    name: str
    topic_id: str
    partition_count: int


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All topics at one version of the cluster's metadata. `version` increases with every change."""

    topics: Map[str, Topic] = field(default_factory=Map)
    names: Map[str, str] = field(default_factory=Map)
    """Topic id -> topic name."""
    version: int = 0

    def topic_of_id(self, topic_id: str) -> Topic | None:
        name = self.names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def with_topic(self, topic: Topic) -> "MetadataImage":
        """The next image, with a topic created or changed."""
        return replace(self._without(topic.name), version=self.version + 1)._with(topic)

    def without_topic(self, name: str) -> "MetadataImage":
        """The next image, with a topic deleted. An unknown topic is fine."""
        return replace(self._without(name), version=self.version + 1)

    def _with(self, topic: Topic) -> "MetadataImage":
        return replace(
            self, topics=self.topics.set(topic.name, topic), names=self.names.set(topic.topic_id, topic.name)
        )

    def _without(self, name: str) -> "MetadataImage":
        topic = self.topics.get(name)
        if topic is None:
            return self
        return replace(self, topics=self.topics.delete(name), names=self.names.delete(topic.topic_id))


def image_of(topics: Iterable[Topic], version: int = 0) -> MetadataImage:
    image = MetadataImage()
    for topic in topics:
        image = image.with_topic(topic)
    return replace(image, version=version)
