"""Compares gold with what was done to the groups and with what their members' own callbacks said.

Owners. For each partition, what each process had by gold and by its callbacks, as intervals of time. The same process
having it again, with nobody in between by either of the two, is one interval: a member of the eager protocol gives all
up in each rebalance, which a classic group's log does not show. Who was killed, closed or hung right after a partition
was assigned to it had that by gold alone: its callback never ran. An interval begins in gold when the generation is
written or the heartbeat is answered, in the client when its callback runs. It ends in gold with the next generation, in
the client when its callback runs, before the join phase; and the join phase lasts until who does not answer has
expired.

Causes. Departures against what the broker's own log says of each member; that a member asked for a rebalance against
the reason there; changes of topics and partitions against the script: an act is the cause of one rebalance.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from tests.live.libraries.truth import EXPIRED, LEFT, GroupTruth, Life, Owned, Partition, Truth

Row = Mapping[str, Any]

CALLBACK_TOLERANCE_MS: Final = 3_000
"""A callback runs so long after (before) the coordinator wrote what it is about, at most: the heartbeat that brings it,
the poll that runs it, and busy machines."""
START_TOLERANCE_MS: Final = 8_000
"""Streams and Connect run a task so long after it was assigned, at most: it is started first, and then looked at."""
JOIN_TOLERANCE_MS: Final = 8_000
"""A process is a member so long after its start, at most, and a change of topics makes a rebalance."""
SHUTDOWN_MS: Final = 5_000
"""A Connect worker waits so long for tasks that it has to give up, and has them until then: Kafka's
task.shutdown.graceful.timeout.ms where nothing is set."""
CLOCKS_MS: Final = 500
"""Two processes of one machine write down the same moment so far apart, at most."""
JOINED_AGAIN: Final = frozenset({"LEADER_JOINED_AGAIN", "MEMBER_JOINED_AGAIN"})

CERTAIN: Final = "CERTAIN"
LIKELY: Final = "LIKELY"
GUESS: Final = "GUESS"
MEMBER_LEFT: Final = "MEMBER_LEFT"
MEMBER_EXPIRED: Final = "MEMBER_EXPIRED"
STILL_THERE: Final = "still there"
FOLLOW_UP: Final = "FOLLOW_UP"


@dataclass(slots=True)
class Score:
    """So many were right of so many; the rest in words."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    left_out: int = 0
    """Processes that are not judged, since the coordinator dropped them while they ran."""

    @property
    def count(self) -> int:
        """Of all."""
        return self.right + len(self.wrong)

    @property
    def share(self) -> float:
        """0 to 1; 1 of none."""
        return self.right / self.count if self.count else 1.0

    def add(self, is_right: bool, words: str) -> None:
        """Count one."""
        if is_right:
            self.right += 1
        else:
            self.wrong.append(words)

    def __str__(self) -> str:
        return f"{self.right} of {self.count}"


JUDGED: Final = ("gold.rebalances", "gold.partition_owners", "silver.group_members")
"""The tables that `report` reads."""
CLIENT_RULES: Final = frozenset({"CLIENT_LAYOUT", "EMBEDDED"})
"""Rules about bytes that clients write, which the coordinators pass on."""


def speaks_of_coordinators(row: Row) -> bool:
    """Does a row of gold.log_anomalies say that a coordinator broke a rule of its own?"""
    category: str = row.get("category", "CLIENT" if row["rule"] in CLIENT_RULES else "COORDINATOR")
    return category == "COORDINATOR"


# ---- owners


def judge_owners(truth: Truth, rows: Iterable[Row], rebalances: Iterable[Row]) -> dict[str, Score]:
    """gold.partition_owners against the callbacks, by group: an interval of either is right where the other has it."""
    ends: dict[str, list[int]] = {group_id: [] for group_id in truth.groups}
    for row in rebalances:
        if row["group_id"] in ends and row["completed_at"] is not None:
            ends[row["group_id"]].append(ms(row["completed_at"]))
    of_group: dict[str, list[Row]] = {group_id: [] for group_id in truth.groups}
    for row in rows:
        if row["group_id"] in of_group:
            of_group[row["group_id"]].append(row)
    return {
        group_id: _owners_of(group, of_group[group_id], sorted(ends[group_id]), truth.ended_at)
        for group_id, group in truth.groups.items()
    }


def _owners_of(group: GroupTruth, rows: Sequence[Row], changes: Sequence[int], ended_at: int) -> Score:
    score = Score()
    in_gold: list[Owned] = []
    dropped: set[Life] = set()
    for row in rows:
        life = group.life_of(row["client_id"], ms(row["valid_from"]))
        partition = (row["topic"], row["partition"])
        if life is None:
            score.add(False, f"{group.group_id}: {partition} had an owner that never was, {row['client_id']}")
            continue
        until = None if row["valid_to"] is None else ms(row["valid_to"])
        in_gold.append(Owned(partition, life, ms(row["valid_from"]), until))
        ran_until = ended_at if life.ended_at is None else life.ended_at
        if any(
            it.what == EXPIRED and life.started_at < it.at < ran_until
            for it in group.departures.get(row["member_id"], ())
        ):
            # The client hung: its callbacks do not say what the coordinator gave it meanwhile.
            dropped.add(life)
    # What a process that hung says of itself ends nobody's interval; that the coordinator gave it a partition does.
    owners = [*in_gold, *(it for it in group.owned if it.life not in dropped)]
    ours = [it for it in joined(in_gold, owners) if it.life not in dropped]
    theirs = [it for it in joined(group.owned, owners) if it.life not in dropped]
    for mine, others, side in ((ours, theirs, "gold"), (theirs, ours, "callbacks")):
        for interval in mine:
            if _is_short(interval, group, ended_at):
                continue
            pairs = _pairs(interval, others, is_gold=side == "gold")
            found = any(_is_same(gold, callbacks, group, changes, ended_at) for gold, callbacks in pairs)
            score.add(found, f"{group.group_id}: only by {side}: {_words(interval)}")
    score.left_out = len(dropped)
    return score


def joined(intervals: Iterable[Owned], owners: Iterable[Owned]) -> list[Owned]:
    """The same process having a partition again is one interval, where none of `owners` had it in between."""
    of_partition: dict[Partition, list[Owned]] = {}
    for owner in owners:
        of_partition.setdefault(owner.partition, []).append(owner)
    result: list[Owned] = []
    for interval in sorted(intervals, key=lambda it: (it.partition, it.from_ms)):
        before = result[-1] if result else None
        if (
            before is not None
            and (before.partition, before.life) == (interval.partition, interval.life)
            and not _had_between(before, interval, of_partition.get(interval.partition, ()))
        ):
            result[-1] = before._replace(to_ms=interval.to_ms)
        else:
            result.append(interval)
    return result


def _had_between(before: Owned, after: Owned, owners: Iterable[Owned]) -> bool:
    """Did another process have the partition at any time between two intervals?"""
    return before.to_ms is not None and any(
        it.life != before.life and it.from_ms < after.from_ms and (it.to_ms is None or it.to_ms > before.to_ms)
        for it in owners
    )


def _is_short(interval: Owned, group: GroupTruth, ended_at: int) -> bool:
    """Too short to be looked for on the other side, or at the edge of the recording."""
    ends = (ended_at, interval.to_ms, interval.life.gone_at)
    until = min(end for end in ends if end is not None)
    return until - interval.from_ms <= CALLBACK_TOLERANCE_MS + group.session_ms // 2


def _pairs(interval: Owned, others: Sequence[Owned], *, is_gold: bool) -> Iterator[tuple[Owned, Owned]]:
    """(gold, callbacks), for each of the other side with the same process and partition."""
    for other in others:
        if (other.partition, other.life) == (interval.partition, interval.life):
            yield (interval, other) if is_gold else (other, interval)


def _is_same(gold: Owned, callbacks: Owned, group: GroupTruth, changes: Sequence[int], ended_at: int) -> bool:
    """Where the next rebalance begins before a client has its assignment, its callback runs after that one."""
    next_change = next((at for at in changes if at > gold.from_ms), gold.from_ms)
    is_overtaken = next_change - gold.from_ms <= group.session_ms + JOIN_TOLERANCE_MS
    is_looked_at = group.facts["protocol"] in {"streams-classic", "connect"}
    late_ms = START_TOLERANCE_MS if is_looked_at else CALLBACK_TOLERANCE_MS
    latest = max(gold.from_ms, next_change if is_overtaken else 0) + late_ms
    if not gold.from_ms - CALLBACK_TOLERANCE_MS <= callbacks.from_ms <= latest:
        return False
    # Who was killed is an owner until the session has run out, who leaves until the next generation.
    gold_end, callbacks_end = (ended_at if it.to_ms is None else it.to_ms for it in (gold, callbacks))
    over_ms = gold_end - callbacks_end
    stop_ms = SHUTDOWN_MS if group.facts["protocol"] == "connect" else 0
    return -CALLBACK_TOLERANCE_MS - stop_ms <= over_ms <= group.session_ms + CALLBACK_TOLERANCE_MS + JOIN_TOLERANCE_MS


def _words(interval: Owned) -> str:
    topic, number = interval.partition
    until = "now" if interval.to_ms is None else f"+{interval.to_ms - interval.from_ms} ms"
    return f"{interval.life.name} had {topic}-{number} from {interval.from_ms} to {until}"


# ---- causes


class Verdict(NamedTuple):
    """A cause of a rebalance, and whether it is what happened."""

    group_id: str
    to_generation: int
    cause: str
    method: str
    confidence: str
    is_right: bool
    truth: str


def judge_causes(truth: Truth, rebalances: Iterable[Row], members: Iterable[Row]) -> list[Verdict]:
    """Every cause of gold.rebalances. UNKNOWN says nothing, and is left out."""
    of_group: dict[str, list[Row]] = {}
    for row in rebalances:
        if row["group_id"] in truth.groups:
            of_group.setdefault(row["group_id"], []).append(row)
    joined_at: dict[tuple[str, str], list[Row]] = {}
    for member in members:
        joined_at.setdefault((member["group_id"], member["member_id"]), []).append(member)
    verdicts: list[Verdict] = []
    for group_id, rows in sorted(of_group.items()):
        rows.sort(key=lambda row: (row["started_at"], row["to_generation"]))
        verdicts.extend(_Causes(truth.groups[group_id], rows, joined_at).verdicts())
    return verdicts


class _Causes:
    """Of one group."""

    def __init__(
        self, group: GroupTruth, rows: Sequence[Row], members: Mapping[tuple[str, str], Sequence[Row]]
    ) -> None:
        self._group = group
        self._rows = rows
        self._members = members

    def verdicts(self) -> Iterator[Verdict]:
        """In order of the rebalances."""
        for number, row in enumerate(self._rows):
            causes = zip(row["causes"], row["cause_methods"], row["cause_confidences"], strict=True)
            for cause, method, confidence in causes:
                if cause == "UNKNOWN":
                    continue
                is_right, why = self._is_true(number, cause, method)
                yield Verdict(self._group.group_id, row["to_generation"], cause, method, confidence, is_right, why)

    def _is_true(self, number: int, cause: str, method: str) -> tuple[bool, str]:
        row, trigger = self._rows[number], self._group.triggers.get(self._rows[number]["from_generation"])
        by_member = trigger is not None and trigger.reason in JOINED_AGAIN
        if FOLLOW_UP in method:
            # A member joined again by itself, and said that it had revoked, if it said anything.
            said = trigger is None or trigger.client_reason in {"REVOKED", "NOT_GIVEN"}
            return number > 0 and by_member and said, f"{trigger}"
        if method == "CONNECT_DELAY_OVER":
            # The tasks of a worker that went with the rebalance before are handed out when the delay is over.
            gone = {it.what for departures in self._group.departures.values() for it in departures}
            return by_member and (LEFT if cause == MEMBER_LEFT else EXPIRED) in gone, f"{trigger}, {gone}"
        match cause:
            case "MEMBER_JOINED":
                lives = [self._life(member_id, row) for member_id in row["members_joined"]]
                return bool(lives) and None not in lives, f"joined: {lives}"
            case "MEMBER_LEFT" | "MEMBER_EXPIRED":
                until = ms(row["completed_at"] or row["started_at"]) + CLOCKS_MS
                ends = [self._end(member_id, until) for member_id in row["members_left"]]
                return (LEFT if cause == MEMBER_LEFT else EXPIRED) in ends, f"went: {ends}"
            case "SUBSCRIPTION_CHANGED" | "PARTITIONS_CHANGED" if self._group.facts["protocol"] == "connect":
                # A connector is made: the workers join again for it, and once more for its tasks. It is asked for until
                # a worker answers, and the next one after that.
                at = ms(row["started_at"])
                asked = [it.at for it in self._group.acts if it.what == "connect"]
                made = bool(asked) and asked[0] <= at <= asked[-1] + JOIN_TOLERANCE_MS
                return made and by_member, f"{trigger}"
            case "SUBSCRIPTION_CHANGED":
                return self._is_after("subscribe", number, cause), f"{trigger}"
            case "PARTITIONS_CHANGED":
                return self._is_after("grow", number, cause) and (by_member or trigger is None), f"{trigger}"
            case "FIRST":
                alive = [it for it in self._group.lives if it.started_at < ms(self._rows[0]["started_at"])]
                return bool(alive) and number == 0, f"lives: {alive}"
            case "GROUP_EMPTIED":
                until = ms(row["completed_at"] or row["started_at"]) + CLOCKS_MS
                ends = [self._end(member_id, until) for member_id in row["members_left"]]
                # Who came and went again before its generation was written is in no record.
                ends = ends or list(self._ends_since(number, until))
                return bool(ends) and STILL_THERE not in ends, f"went: {ends}"
        return False, "nothing of the kind was done"

    def _is_after(self, act: str, number: int, cause: str) -> bool:
        """Was such an act done that no rebalance before has as its cause?"""
        until = ms(self._rows[number]["completed_at"] or self._rows[number]["started_at"]) + CLOCKS_MS
        done = sum(it.what == act and it.at <= until for it in self._group.acts)
        had = sum(
            cause in row["causes"] and FOLLOW_UP not in row["cause_methods"][row["causes"].index(cause)]
            for row in self._rows[:number]
        )
        return done > had

    def _end(self, member_id: str, until: int) -> str:
        """Why the member went that had gone by a time."""
        gone = [it.what for it in self._group.departures.get(member_id, ()) if it.at <= until]
        return gone[-1] if gone else STILL_THERE

    def _ends_since(self, number: int, until: int) -> Iterator[str]:
        """Why members went since the rebalance before."""
        before = self._rows[number - 1] if number else None
        since = 0 if before is None else ms(before["completed_at"] or before["started_at"])
        for reasons in self._group.departures.values():
            yield from (it.what for it in reasons if since < it.at <= until)

    def _life(self, member_id: str, row: Row) -> Life | None:
        rows = self._members.get((self._group.group_id, member_id), ())
        intervals = [it for it in rows if ms(it["valid_from"]) <= ms(row["completed_at"] or row["started_at"]) + 1]
        if not intervals:
            return None
        first = intervals[0]
        return self._group.life_of(first["client_id"], ms(first["valid_from"]))


def by_confidence(verdicts: Iterable[Verdict]) -> dict[str, Score]:
    """Scores of CERTAIN, LIKELY and GUESS."""
    scores = {confidence: Score() for confidence in (CERTAIN, LIKELY, GUESS)}
    for verdict in verdicts:
        scores[verdict.confidence].add(verdict.is_right, str(verdict))
    return scores


def departures(verdicts: Iterable[Verdict], confidence: str) -> dict[str, Score]:
    """Scores of MEMBER_LEFT and MEMBER_EXPIRED apart, of one confidence."""
    scores = {MEMBER_LEFT: Score(), MEMBER_EXPIRED: Score()}
    for verdict in verdicts:
        if verdict.cause in scores and verdict.confidence == confidence and FOLLOW_UP not in verdict.method:
            scores[verdict.cause].add(verdict.is_right, str(verdict))
    return scores


def acts_done(truth: Truth) -> Counter[str]:
    """How often each act was done."""
    return Counter(act.what for group in truth.groups.values() for act in group.acts if act.what != "settle")


def ms(at: datetime) -> int:
    """Milliseconds since the epoch."""
    return round(at.timestamp() * 1000)


def report(truth: Truth, tables: Mapping[str, Sequence[Row]]) -> "Judgement":
    """All measures over the tables of a recording."""
    verdicts = judge_causes(truth, tables["gold.rebalances"], tables["silver.group_members"])
    return Judgement(
        judge_owners(truth, tables["gold.partition_owners"], tables["gold.rebalances"]),
        by_confidence(verdicts),
        {confidence: departures(verdicts, confidence) for confidence in (CERTAIN, LIKELY, GUESS)},
        acts_done(truth),
        len(truth.libraries),
        len(truth.languages),
        verdicts,
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of a comparison."""

    owners: Mapping[str, Score]
    causes: Mapping[str, Score]
    departures: Mapping[str, Mapping[str, Score]]
    """MEMBER_LEFT and MEMBER_EXPIRED apart, by confidence."""
    acts: Counter[str]
    library_count: int
    language_count: int
    verdicts: Sequence[Verdict]

    @property
    def wrongly_certain(self) -> list[Verdict]:
        """What is never right to say."""
        return [verdict for verdict in self.verdicts if verdict.confidence == CERTAIN and not verdict.is_right]

    @property
    def wrong_owners(self) -> list[str]:
        """Of all groups, in words."""
        return [words for score in self.owners.values() for words in score.wrong]

    def lines(self, name: str) -> Iterator[str]:
        """For the end of a test run."""
        done = ", ".join(f"{count} {act}" for act, count in sorted(self.acts.items()))
        yield f"{name}: {self.library_count} libraries of {self.language_count} languages; done: {done}"
        right = sum(score.right for score in self.owners.values())
        count = sum(score.count for score in self.owners.values())
        left_out = sum(score.left_out for score in self.owners.values())
        yield f"{name}: owners as in the callbacks: {right} of {count} (not judged: {left_out} processes that hung)"
        causes = ", ".join(f"{confidence} {score}" for confidence, score in self.causes.items())
        yield f"{name}: causes right: {causes}"
        for confidence, scores in self.departures.items():
            ends = ", ".join(f"{cause} {score}" for cause, score in scores.items())
            yield f"{name}: departures right, {confidence}: {ends}"
