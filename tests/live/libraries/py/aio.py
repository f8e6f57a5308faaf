"""A member by aiokafka."""

import asyncio
from collections.abc import Iterable

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from member import Member

me = Member()


class Listener(ConsumerRebalanceListener):
    def on_partitions_assigned(self, assigned: Iterable[tuple[str, int]]) -> None:
        me.says("assigned", assigned)

    def on_partitions_revoked(self, revoked: Iterable[tuple[str, int]]) -> None:
        me.says("revoked", revoked)


async def main() -> None:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=me["servers"],
        group_id=me["group"],
        client_id=me["name"],
        auto_offset_reset="earliest",
        auto_commit_interval_ms=me["commit_ms"],
        session_timeout_ms=me["session_ms"],
        heartbeat_interval_ms=me["heartbeat_ms"],
        metadata_max_age_ms=2000,
    )
    consumer.subscribe(me["topics"], listener=Listener())
    await consumer.start()
    while True:
        await consumer.getmany(timeout_ms=100)
        match me.command():
            case ["stop"]:
                break
            case ["subscribe", topics]:
                consumer.subscribe(topics.split(","), listener=Listener())
    await consumer.stop()
    me.says("closed")


asyncio.run(main())
