"""A member by confluent-kafka (librdkafka)."""

from collections.abc import Iterable

from confluent_kafka import Consumer, TopicPartition
from member import Member

me = Member()
settings = {
    "bootstrap.servers": me["servers"],
    "group.id": me["group"],
    "client.id": me["name"],
    "auto.offset.reset": "earliest",
    "auto.commit.interval.ms": me["commit_ms"],
    "topic.metadata.refresh.interval.ms": 2000,
    "metadata.max.age.ms": 6000,
}
if me["protocol"] == "consumer":
    settings["group.protocol"] = "consumer"
else:
    settings["session.timeout.ms"] = me["session_ms"]
    settings["heartbeat.interval.ms"] = me["heartbeat_ms"]
    settings["partition.assignment.strategy"] = me.settings.get("assignor", "range,roundrobin")
if "instance" in me.settings:
    settings["group.instance.id"] = me["instance"]


def of(partitions: Iterable[TopicPartition]) -> list[tuple[str, int]]:
    return [(it.topic, it.partition) for it in partitions]


listeners = {
    "on_assign": lambda _, partitions: me.says("assigned", of(partitions)),
    "on_revoke": lambda _, partitions: me.says("revoked", of(partitions)),
    "on_lost": lambda _, partitions: me.says("lost", of(partitions)),
}
consumer = Consumer(settings)
consumer.subscribe(me["topics"], **listeners)
while True:
    consumer.poll(0.1)
    match me.command():
        case ["stop"]:
            break
        case ["subscribe", topics]:
            consumer.subscribe(topics.split(","), **listeners)
consumer.close()
me.says("closed")
