"""Randomness of a simulation: one stream per actor, so that actors do not affect one another."""

import base64
import hashlib
import random
import uuid


def stream(seed: int, *names: object) -> random.Random:
    """The random numbers of one actor: the same for the same seed and names, on every machine."""
    text = "\x00".join((str(seed), *map(str, names)))
    return random.Random(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))


def java_uuid(draws: random.Random) -> str:
    """A random UUID as java.util.UUID prints it: member ids of classic groups end in one."""
    return str(uuid.UUID(int=draws.getrandbits(128), version=4))


def kafka_uuid(draws: random.Random) -> str:
    """A random UUID as Kafka prints it, 22 characters; none begins with a dash (Uuid.randomUuid)."""
    while True:
        raw = uuid.UUID(int=draws.getrandbits(128), version=4).bytes
        text = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        if not text.startswith("-"):
            return text
