"""Weeks of a group as coordinators write them: members come and go, some days nothing happens, and offsets move on."""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final

from coordinator_core.bytes.codec import encode_key, encode_value, make
from schemas import wire
from schemas.consumer_offsets import TOPIC as LOG_TOPIC
from schemas.consumer_offsets import RecordType
from schemas.registry import REGISTRY
from tests.coordinator_core.group_records import Record, record
from tests.coordinator_core.inference.group_lives import (
    GROUP,
    classic,
    commit,
    epoch,
    generation,
    goes,
    joins,
    reconciled,
    target,
)
from tests.coordinator_core.live.offsets.reference import ABORT, COMMIT, LogBatch, LogRecord, encode_batches, marker

DAY_MS: Final = 86_400_000
PARTITIONS: Final = 4
AWAY_EPOCH: Final = -2
PRODUCER_ID: Final = 7
STEPS_MS: Final = (1_000, 3_000, 20_000, 90_000, 700_000, 2_000_000, 20_000_000, 40_000_000, 90_000_000)
"""Between two things that happen."""


def weeks_log(random: Random, group_ids: Sequence[str], count: int) -> list[bytes]:
    """So many things of each of some groups in one log, in batches, mostly in the order of time."""
    reported = []
    for number, group_id in enumerate(group_ids):
        newest_ms = 0
        for index, batch in enumerate(Weeks(random, group_id).reported(count)):
            newest_ms = max(newest_ms, batch.records[0].timestamp_ms)
            reported.append((newest_ms, number, index, batch))
    return encode_batches([batch for *_, batch in sorted(reported, key=lambda one: one[:3])])


def standing_log(random: Random, night_count: int) -> tuple[list[bytes], list[int]]:
    """A log of some weeks of a group, and of so many nights in each of which its membership is unchanged; and how many
    batches there were before each of these."""
    weeks = Weeks(random, GROUP)
    batches = weeks.reported(random.randint(20, 80))
    places = []
    for _ in range(night_count):
        places.append(len(batches))
        weeks.goes_on(random.randint(1, 8))
    return encode_batches(batches), places


def moved_after_days() -> tuple[list[bytes], int]:
    """As `moved_member`, days after its offset went back, with a rebalance each day."""
    both = {"m": [0], "other": [1]}
    reported = [(0, generation(1, both, host="/old"))]
    reported += [(1_000, commit(*offset)) for offset in ((10, 0), (5, 0), (10, 1), (5, 1))]
    for day in (1, 2):
        reported.append((day * DAY_MS, generation(day + 1, both | {f"x{day}": [2]}, host="/old")))
    reported.append((3 * DAY_MS, generation(4, both, host="/new", hosts={"other": "/old"})))
    reported.append((3 * DAY_MS + 1_000, commit(20)))
    return timed_batches(reported), len(reported) - 2


def timed_batches(reported: Iterable[tuple[int, Iterable[LogRecord]]]) -> list[bytes]:
    """Records that were written at a time, in batches."""
    return encode_batches(
        [LogBatch(tuple(record._replace(timestamp_ms=at_ms) for record in records)) for at_ms, records in reported],
        base_sequence=0,
    )


class Weeks:
    """The log of one group, written step by step. `has_long_steps`: days may pass between two, and clocks may go
    back."""

    def __init__(self, random: Random, group_id: str, *, has_long_steps: bool = True) -> None:
        self._random = random
        self._group_id = group_id
        self._has_long_steps = has_long_steps
        self._at_ms = random.randrange(90_000_000)
        self._batches: list[LogBatch] = []
        self._is_classic = random.random() < 0.5
        self._is_cooperative = random.random() < 0.5
        self._has_last = True
        """Is the last partition given to anybody?"""
        self._is_open = False
        """Is a transaction?"""
        self._moving = random.choice((0, 0, 0.05, 0.5, 1))
        """How many members come back from other hosts."""
        self._deleting = random.choice((0.02, 0.02, 0.3))
        """How many offsets are deleted, in addition to those that are committed."""
        self._gone: set[str] = set()
        """Ids of members that went."""
        self._generation = 0
        self._instances: dict[str, str] = {}
        self._members: dict[str, list[int]] = {}
        """Who is there, and what it is given."""
        self._late: dict[str, list[int]] = {}
        """Who has not come to the newest epoch yet, and what it gives up first."""
        self._member_count = 0
        self._offset = 0
        self._hosts: dict[str, str] = {}

    def reported(self, count: int) -> list[LogBatch]:
        """So many things, in batches."""
        for _ in range(count):
            self._pass_time()
            self._happen()
        return self._batches

    def goes_on(self, count: int) -> list[LogBatch]:
        """So many things more, and no records of the group among them: offsets are committed or deleted."""
        for _ in range(count):
            self._pass_time()
            if self._random.random() < 0.1:
                self._transact()
            else:
                self._commit()
        return self._batches

    def wait_until(self, at_ms: int) -> None:
        """Nothing happens before."""
        self._at_ms = max(self._at_ms, at_ms)

    def _pass_time(self) -> None:
        chance = self._random.random()
        if chance < 0.05:
            # a storm or a deployment may go on over midnight
            to_midnight_ms = -self._at_ms % DAY_MS
            self._at_ms += max(to_midnight_ms - self._random.randrange(400_000), 0)
        elif not self._has_long_steps:
            self._at_ms += self._random.randrange(self._random.choice(STEPS_MS[:5]))
        elif chance < 0.06:
            self._at_ms -= self._random.choice((1_000, 100_000, 1_000_000, 100_000_000))
        else:
            self._at_ms += self._random.randrange(self._random.choice(STEPS_MS[:4] if chance < 0.7 else STEPS_MS))

    def _happen(self) -> None:
        chance = self._random.random()
        if self._late and chance < 0.8:
            self._arrive()
        elif chance < 0.3:
            for _ in range(self._random.randint(1, 3)):
                self._commit()
        elif chance < 0.35:
            self._transact()
        elif chance < 0.4 and not self._is_classic and self._instances:
            # a static member goes for a while; whether it comes again is for what follows to say
            self._write(reconciled(self._random.choice(list(self._instances)), AWAY_EPOCH, []))
        elif chance < 0.6:
            self._change(came=1)
        elif chance < 0.75:
            self._change(went=1)
        elif chance < 0.85:
            self._change(came=1, went=1)
        elif chance < 0.9:
            self._change()
        elif chance < 0.95:
            self._change(went=len(self._members))
        elif chance < 0.97 and not self._members:
            self._delete()
        elif self._members:
            self._change()

    def _commit(self) -> None:
        self._offset += self._random.choice((1, 1, 1, 5, -2) if self._random.random() < 0.998 else (900,))
        offset = None if self._random.random() < self._deleting else max(self._offset, 0)
        self._write_logged(commit(offset, self._random.randrange(PARTITIONS), self._group_id))

    def _transact(self) -> None:
        """A transaction begins with an offset, or ends."""
        if self._is_open:
            self._batches.append(marker(PRODUCER_ID, self._random.choice((ABORT, COMMIT, COMMIT)), self._at_ms))
        else:
            records = commit(self._offset, self._random.randrange(PARTITIONS), self._group_id)
            timed = tuple(one._replace(timestamp_ms=self._at_ms) for one in records)
            self._batches.append(LogBatch(timed, PRODUCER_ID, True))
        self._is_open = not self._is_open

    def _change(self, came: int = 0, went: int = 0) -> None:
        """A rebalance: members come and go; some may come back from other hosts."""
        left = self._random.sample(list(self._members), min(went, len(self._members)))
        instances = [self._instances.pop(member_id) for member_id in left if member_id in self._instances]
        for member_id in left:
            del self._members[member_id]
            self._gone.add(member_id)
        new = [self._came() for _ in range(came)]
        for member_id in new:
            self._members[member_id] = []
            self._hosts.setdefault(member_id, "/h")
            if self._random.random() < 0.4:
                self._instances[member_id] = instances.pop() if instances else f"i-{member_id}"
        moved = [member_id for member_id in self._members if self._random.random() < self._moving]
        for member_id in moved:
            self._hosts[member_id] = f"/host-{self._random.randrange(9)}"
        before = self._members
        self._members = self._assigned()
        self._generation += self._random.random() < 0.03  # one is missing
        self._generation += 1
        if self._is_classic:
            self._write(self._classic_generation())
            return
        records = [record for member_id in left for record in goes(member_id)]
        for member_id in new:
            records += self._reported(member_id)
        for member_id in moved:
            records += self._reported(member_id) if member_id not in new else ()
        self._write([*records, *epoch(self._generation, self._random.choice((7, 7, 7, 8)))])
        self._late = {member_id: lost for member_id, lost in self._late.items() if member_id in self._members}
        if self._random.random() < 0.05:
            return  # the next epoch comes before the target of this one
        if self._random.random() < 0.5:
            self._at_ms += self._random.randrange(2_000)
        self._write(target(self._generation, self._members))
        self._late = {
            member_id: [one for one in before.get(member_id, ()) if one not in owned]
            for member_id, owned in self._members.items()
        }

    def _came(self) -> str:
        """The id of a member that comes: perhaps of one that was there once, and went."""
        if self._gone and self._random.random() < 0.2:
            member_id = self._random.choice(sorted(self._gone))
            self._gone.remove(member_id)
            return member_id
        self._member_count += 1
        return f"m{self._member_count}"

    def _reported(self, member_id: str) -> list[Record]:
        return joins(member_id, self._instances.get(member_id), host=self._hosts[member_id])

    def _classic_generation(self) -> list[Record]:
        return classic(
            self._generation,
            self._members,
            state_at=self._at_ms - self._random.randrange(2_000),
            protocol="cooperative-sticky" if self._is_cooperative else "range",
            instances=self._instances,
            hosts=self._hosts,
        )

    def _assigned(self) -> dict[str, list[int]]:
        """What each member is given: mostly all partitions, by turns; sometimes one is left out."""
        owned: dict[str, list[int]] = {member_id: [] for member_id in self._members}
        ids = self._random.sample(sorted(owned), len(owned)) if self._random.random() < 0.3 else sorted(owned)
        self._has_last ^= self._random.random() < 0.1
        for partition in range(PARTITIONS - 1 + self._has_last):
            if ids:
                owned[ids[partition % len(ids)]].append(partition)
        return owned

    def _arrive(self) -> None:
        """A member comes to the newest epoch, or gives up first what it is to lose."""
        member_id = self._random.choice(list(self._late))
        owned, revoked = self._members[member_id], self._late.pop(member_id)
        if revoked and self._random.random() < 0.5:
            self._late[member_id] = []
            self._write(reconciled(member_id, self._generation - 1, owned, revoking=revoked, state=1))
        else:
            self._write(reconciled(member_id, self._generation, owned))

    def _delete(self) -> None:
        """The group goes, and another comes of its name."""
        if self._is_classic:
            self._write([record(RecordType.GROUP_METADATA, {"group": GROUP}, None)])
        else:
            key = {"group_id": GROUP}
            kinds = (RecordType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, RecordType.CONSUMER_GROUP_METADATA)
            self._write([record(kind, key, None) for kind in kinds])
        self._is_classic = self._random.random() < 0.5
        self._generation = 0

    def _write(self, records: Iterable[Record]) -> None:
        self._batches.append(logged(records, self._at_ms, self._group_id))

    def _write_logged(self, records: Sequence[LogRecord]) -> None:
        self._batches.append(LogBatch(tuple(one._replace(timestamp_ms=self._at_ms) for one in records)))


def logged(records: Iterable[Record], at_ms: int, group_id: str) -> LogBatch:
    """The records of one operation of a group, in a batch."""
    return LogBatch(tuple(_encoded(one, group_id)._replace(timestamp_ms=at_ms) for one in records))


def _encoded(one: Record, group_id: str) -> LogRecord:
    kind, reported, value = one
    message = REGISTRY[LOG_TOPIC][kind][0]
    fields = {field.name: getattr(reported, field.name) for field in message.fields}
    key = make(message, **fields | {name: group_id for name in ("group", "group_id") if name in fields})
    if value is None:
        return LogRecord(encode_key(LOG_TOPIC, kind, key), None, 0)
    version = wire.message_versions(REGISTRY[LOG_TOPIC][kind][1])[-1]
    return LogRecord(encode_key(LOG_TOPIC, kind, key), encode_value(LOG_TOPIC, kind, version, value), 0)
