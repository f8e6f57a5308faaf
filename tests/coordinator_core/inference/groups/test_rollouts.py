"""Rolling deployments, as distinct from scale-out and scale-in, crashes, crash loops and restarts of all at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_core.history.client_families import client_family
from coordinator_core.history.rows import CONVERTED, LEFT_OR_EXPIRED, REPLACED_STATIC, MemberRow
from coordinator_core.inference.audit.groups import audit_group
from coordinator_core.inference.commits.last_commit_times import Membership
from coordinator_core.inference.facts.claims import Claim
from coordinator_core.inference.facts.settings import InferenceSettings
from coordinator_core.inference.groups.leave_reasons import membership_of
from coordinator_core.inference.groups.rollouts import ROLLING_DEPLOYMENT, by_others, find_rollouts
from tests.coordinator_core.inference.group_lives import classic, epoch, goes, joins, life_of, reconciled, target

SETTINGS = InferenceSettings()
MINUTE_MS: Final = 60_000

Place = Mapping[str, str | None]
Steps = Sequence[str] | Mapping[int, str]
"""Who comes and goes, as `+a2 -a1`: a letter is a place, its number the process there. One a minute, or by minute."""


def machines(name: str) -> Place:
    """Clients of one name on machines that stay."""
    return {"client_id": "consumer-billing-1", "client_host": f"/{name[0]}"}


def pods(name: str) -> Place:
    """Pods: name and address are new each time."""
    return {"client_id": f"billing-7d9c5b6f4-{name}2xk", "client_host": f"/{name}"}


def stateful(name: str) -> Place:
    """Pods that keep their names, and get new addresses."""
    return {"client_id": f"billing-{ord(name[0])}", "client_host": f"/{name}"}


def static(name: str) -> Place:
    """Static members."""
    return {**machines(name), "instance_id": name[0]}


def members_of(steps: Steps, place: Callable[[str], Place] = machines) -> list[MemberRow]:
    """The membership intervals that the steps make."""
    by_minute = steps if isinstance(steps, Mapping) else dict(enumerate(steps))
    open_rows: dict[str, MemberRow] = {}
    rows = []
    for minute, changes in sorted(by_minute.items()):
        came = [change[1:] for change in changes.split() if change[0] == "+"]
        for change in changes.split():
            if change[0] == "-":
                name = change[1:]
                is_replaced = place is static and any(other[0] == name[0] for other in came)
                ended_by = REPLACED_STATIC if is_replaced else LEFT_OR_EXPIRED
                open_row = open_rows.pop(name)
                rows.append(open_row._replace(to_log_offset=minute, valid_to=minute * MINUTE_MS, ended_by=ended_by))
        for name in came:
            of_client = place(name)
            open_rows[name] = MemberRow(
                group_id="g",
                group_type="CLASSIC",
                member_id=name,
                from_log_offset=minute,
                to_log_offset=None,
                valid_from=minute * MINUTE_MS,
                valid_to=None,
                incarnation=0,
                from_generation=0,
                to_generation=0,
                ended_by=None,
                instance_id=of_client.get("instance_id"),
                client_id=of_client["client_id"] or "",
                client_host=of_client["client_host"] or "",
                rack_id=None,
                subscribed_topics=None,
                subscribed_regex=None,
                server_assignor=None,
                rebalance_timeout_ms=None,
                session_timeout_ms=None,
                member_epoch=None,
                uses_classic_protocol=False,
            )
    return [*rows, *open_rows.values()]


def leave_reasons(members: Sequence[MemberRow], leave_reason: Claim) -> dict[Membership, Claim]:
    """Everybody who left, for the same reason."""
    return {
        (member.member_id, member.from_log_offset): leave_reason
        for member in members
        if member.ended_by == LEFT_OR_EXPIRED
    }


LEFT = Claim("MEMBER_LEFT", "HEARD_WITHIN_SESSION", "LIKELY")
EXPIRED = Claim("MEMBER_EXPIRED", "SILENT_FOR_SESSION", "LIKELY")
UNKNOWN_REASON = Claim("UNKNOWN", "LEFT_OR_EXPIRED", "GUESS")
STOPPED = Claim("MEMBER_LEFT", "SILENT_FOR_POLL_INTERVAL", "GUESS")


@dataclass(frozen=True)
class Case:
    """Steps after `+a1 +b1 +c1` (or what `first` says), and the steps of the rolling deployment among them."""

    name: str
    steps: Sequence[str]
    expected: tuple[int, int] | None
    """First and last step, from 1."""
    place: Callable[[str], Place] = machines
    leave_reason: Claim = LEFT
    confidence: str = "LIKELY"
    first: str = "+a1 +b1 +c1"


ONE_BY_ONE = ("-a1", "+a2", "-b1", "+b2", "-c1", "+c2")
SURGE = ("+a2", "-a1", "+b2", "-b1", "+c2", "-c1")
AT_ONCE = ("+a2 -a1", "+b2 -b1", "+c2 -c1")
FOUR = "+a1 +b1 +c1 +d1"

CASES: Final = (
    Case("each goes and comes back", ONE_BY_ONE, (1, 6)),
    Case("pods: each goes, another comes", ONE_BY_ONE, (1, 6), pods),
    Case("pods: another comes, then one goes", SURGE, (1, 6), pods),
    Case("one generation has both", AT_ONCE, (1, 3), pods),
    Case("static members", AT_ONCE, (1, 3), static),
    Case("static members whose sessions end meanwhile", ONE_BY_ONE, (1, 6), static, EXPIRED),
    Case("nobody leaves: the sessions of the old ones end", ("+a2", "+b2", "+c2", "-a1", "-b1", "-c1"), (1, 6)),
    Case("the same with pods that keep their names", ("+a2", "+b2", "+c2", "-a1", "-b1", "-c1"), (1, 6), stateful),
    Case("two at a time", ("-a1 -b1", "+a2 +b2", "-c1 -d1", "+c2 +d2"), (1, 4), pods, first=FOUR),
    Case("one is restarted, one is added, one leaves", ("+c1", "-b1", "+b2", "-a1"), None, stateful, first="+a1 +b1"),
    Case("the same of three", ("+d1", "-c1", "+c2", "-b1", "+b2", "-a1"), None, stateful),
    Case("of two", ("-a1", "+a2", "-b1", "+b2"), (1, 4), first="+a1 +b1"),
    Case(
        "of two, which seem to have died", ("-a1", "+a2", "-b1", "+b2"), (1, 4), machines, EXPIRED, "GUESS", "+a1 +b1"
    ),
    Case("after one more came", ("+d1", *ONE_BY_ONE, "-d1", "+d2"), (2, 9)),
    Case("one comes for good just before", ("+d1", *SURGE, "+d2", "-d1"), (2, 9), pods),
    Case("then one crashes", (*ONE_BY_ONE, "-a2", "+a3"), (1, 6)),
    Case("scale-out", ("+d1", "+e1", "+f1"), None),
    Case("scale-in", ("-a1", "-b1"), None),
    Case("scale-in and out", ("-a1", "-b1", "+a2", "+b2"), None),
    Case("one crash", ("-a1", "+a2"), None, leave_reason=EXPIRED),
    Case("one that crashes again and again", ("-a1", "+a2", "-a2", "+a3", "-a3", "+a4", "-b1", "+b2"), None),
    Case("two of three", ("-a1", "+a2", "-b1", "+b2"), None),
    Case("all at once", ("-a1 -b1 -c1", "+a2 +b2 +c2"), None),
    Case("all at once, in one generation", ("-a1 -b1 -c1 +a2 +b2 +c2",), None),
    Case("all within a moment", ("-a1", "-b1", "-c1", "+a2", "+b2", "+c2"), None),
    Case("scale-out, then in", ("+d1", "+e1", "+f1", "-a1", "-b1", "-c1"), None, pods),
    Case("they had stopped polling, and came again", ONE_BY_ONE, None, leave_reason=STOPPED),
    Case("the same process comes again", ("-a1", "+a1", "-b1", "+b1", "-c1", "+c1"), None),
    Case("one only", ("-a1", "+a2"), None, first="+a1"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_a_rolling_deployment(case: Case) -> None:
    """All members exchanged in turn, and nothing else; a restart of all, a crash loop or more members are none."""
    members = members_of((case.first, *case.steps), case.place)
    rollouts = find_rollouts(members, leave_reasons(members, case.leave_reason), SETTINGS)
    found = [(rollout.log_offsets[0], rollout.log_offsets[-1]) for rollout in rollouts]
    assert found == ([] if case.expected is None else [case.expected])
    assert all(rollout.confidence == case.confidence for rollout in rollouts)


def test_a_deployment_does_not_pause_for_long() -> None:
    """Three restarts on three days are three restarts."""
    minutes = (0, 1, 2, 3, 4, 5, 6)
    for pause, expected in ((9, 1), (11, 0)):
        steps = dict(zip((m + pause * (m > 2) for m in minutes), ("+a1 +b1 +c1", *ONE_BY_ONE), strict=True))
        assert len(find_rollouts(members_of(steps), {}, SETTINGS)) == expected


def test_one_service_of_several_in_a_group() -> None:
    """Client ids tell which members are of one service; others that stay do not matter, nor do those that crash."""
    others = [row._replace(client_id="consumer-audit-1") for row in members_of(("+x1 +y1", "", "-x1", "", "+x2"))]
    members = members_of(("+a1 +b1 +c1", *ONE_BY_ONE), pods)
    (rollout,) = find_rollouts([*others, *members], {}, SETTINGS)
    assert rollout.member_ids == {"a1", "b1", "c1", "a2", "b2", "c2"}


def test_two_deployments_one_after_the_other() -> None:
    """Each is its own: who came with the first goes with the second."""
    second = tuple(step.replace("2", "3").replace("1", "2") for step in ONE_BY_ONE)
    rollouts = find_rollouts(members_of(("+a1 +b1 +c1", *ONE_BY_ONE, *second)), {}, SETTINGS)
    assert [rollout.log_offsets for rollout in rollouts] == [tuple(range(1, 7)), tuple(range(7, 13))]


def test_a_group_that_is_converted_on_the_way() -> None:
    """The deployment that brings the new protocol: members which a conversion carries over have not gone."""
    carried = ("b1", "c1", "a2")
    members = []
    for row in members_of(("+a1 +b1 +c1", *ONE_BY_ONE)):
        if row.member_id not in carried:
            members.append(row)
            continue
        before = row._replace(to_log_offset=2, valid_to=2 * MINUTE_MS, ended_by=CONVERTED)
        members += [before, row._replace(from_log_offset=2, valid_from=2 * MINUTE_MS, group_type="CONSUMER")]
    members = [row for row in members if row.to_log_offset != row.from_log_offset]
    (rollout,) = find_rollouts(members, {}, SETTINGS)
    assert {member_id for member_id, _ in rollout.old} == {"a1", "b1", "c1"}
    assert ("b1", 2) in rollout.old, "by the interval that ended"


@pytest.mark.parametrize(
    ("client_ids", "expected"),
    [
        (("consumer-billing-1", "consumer-billing-12"), True),
        (("billing-7d9c5b6f4-x2kqz", "billing-7d9c5b6f4-bcdfg"), True),
        (
            ("orders-4f1e2a60-8d33-4d0c-9a2e-0f8ab8c2d111-StreamThread-1-consumer", "orders-0-StreamThread-2-consumer"),
            True,
        ),
        (("rdkafka", "rdkafka"), True),
        (("", "17"), True),
        (("billing-1", "search-1"), False),
        (("billing", "BILLING"), False),
    ],
)
def test_families_of_client_ids(client_ids: tuple[str, str], expected: bool) -> None:
    """Instances of one service differ in what a machine made up."""
    one, other = map(client_family, client_ids)
    assert (one == other) == expected


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (
            [LEFT, UNKNOWN_REASON, UNKNOWN_REASON],
            [LEFT[:2], ("MEMBER_LEFT", ROLLING_DEPLOYMENT), ("MEMBER_LEFT", ROLLING_DEPLOYMENT)],
        ),
        ([EXPIRED, UNKNOWN_REASON, EXPIRED], [EXPIRED[:2], ("MEMBER_EXPIRED", ROLLING_DEPLOYMENT), EXPIRED[:2]]),
        ([LEFT, EXPIRED, UNKNOWN_REASON], [LEFT[:2], EXPIRED[:2], UNKNOWN_REASON[:2]]),
        ([UNKNOWN_REASON, UNKNOWN_REASON, UNKNOWN_REASON], [UNKNOWN_REASON[:2]] * 3),
    ],
)
def test_departures_by_the_others_of_the_deployment(known: list[Claim], expected: list[tuple[str, str]]) -> None:
    """Where all that are known stopped one way, so did those of which nothing is known; else nothing is said."""
    members = members_of(("+a1 +b1 +c1", *ONE_BY_ONE))
    why = {(f"{letter}1", 0): leave_reason for letter, leave_reason in zip("abc", known, strict=True)}
    reported = why | by_others(find_rollouts(members, why, SETTINGS), why)
    assert [reported[f"{letter}1", 0][:2] for letter in "abc"] == expected
    assert all(leave_reason.confidence != "CERTAIN" for leave_reason in reported.values())


def test_each_deployment_goes_by_its_own_members() -> None:
    """What is known of one says nothing of the next, and hides nothing of it."""
    again = ("-a2", "+a3", "-b2", "+b3", "-c2", "+c3")
    members = members_of(dict(enumerate(("+a1 +b1 +c1", *ONE_BY_ONE))) | dict(enumerate(again, start=1_000)))
    rows = {row.member_id: membership_of(row) for row in members}
    why = {rows["a1"]: LEFT, rows["b1"]: UNKNOWN_REASON, rows["a2"]: EXPIRED, rows["b2"]: UNKNOWN_REASON}
    rollouts = find_rollouts(members, why, SETTINGS)
    assert len(rollouts) == 2
    assert {membership: reason.cause for membership, reason in by_others(rollouts, why).items()} == {
        rows["b1"]: "MEMBER_LEFT",
        rows["b2"]: "MEMBER_EXPIRED",
    }


def test_rebalances_of_a_deployment_are_marked() -> None:
    """In a consumer group: each is marked with the first, causes stay what they are, and nobody flaps."""
    operations = [(0, [*joins("a1"), *joins("b1"), *epoch(2), *target(2, {"a1": (0,), "b1": (1,)})])]
    operations.append((1, [*reconciled("a1", 2, (0,)), *reconciled("b1", 2, (1,))]))
    for number, (leaving, coming) in enumerate((("a1", "a2"), ("b1", "b2"))):
        at = 3_600_000 + number * MINUTE_MS
        operations.append((at, [*goes(leaving), *epoch(3 + 2 * number)]))
        operations.append((at + 10_000, [*joins(coming), *epoch(4 + 2 * number)]))
    operations.append((3_600_000 + 30 * MINUTE_MS, epoch(7, metadata_hash=8)))
    life = life_of(operations)
    same = tuple(row._replace(client_id="consumer-g-1", client_host=f"/{row.member_id[0]}") for row in life.members)
    rows = audit_group(life._replace(members=same), SETTINGS).rebalances
    assert [(row.to_generation, row.cause, row.rollout_id, row.rollout_confidence) for row in rows] == [
        (2, "FIRST", None, None),
        (3, "UNKNOWN", "0/3", "LIKELY"),
        (4, "MEMBER_JOINED", "0/3", "LIKELY"),
        (5, "UNKNOWN", "0/3", "LIKELY"),
        (6, "MEMBER_JOINED", "0/3", "LIKELY"),
        (7, "PARTITIONS_CHANGED", None, None),
    ]


def test_who_is_deployed_does_not_flap() -> None:
    """A deployment of five takes five rebalances, and is no storm: nobody comes and goes again and again."""
    members = [f"{letter}1" for letter in "abcde"]
    operations = [(0, classic(1, {member: (index,) for index, member in enumerate(members)}))]
    for index in range(5):
        members[index] = f"{members[index][0]}2"
        owned = {member: (number,) for number, member in enumerate(members)}
        operations.append((3_600_000 + index * MINUTE_MS, classic(2 + index, owned)))
    life = life_of(operations)
    same = tuple(row._replace(client_id="consumer-g-1", client_host=f"/{row.member_id[0]}") for row in life.members)
    rows = audit_group(life._replace(members=same), SETTINGS).rebalances
    assert [(row.in_storm, row.rollout_id, row.flapping_members) for row in rows] == [
        (False, None, ()),
        *[(False, "0/2", ())] * 5,
    ]


@given(st.data())
def test_whatever_comes_and_goes(data: st.DataObject) -> None:
    """A rolling deployment exchanges as many as were there, none of them twice, and two of a family never overlap."""
    present: list[str] = []
    count = 0
    steps: list[str] = []
    for _ in range(data.draw(st.integers(1, 30))):
        went = data.draw(st.lists(st.sampled_from(present), unique=True, max_size=2)) if present else []
        came = [
            f"{data.draw(st.sampled_from('abcd'))}{count + number}" for number in range(data.draw(st.integers(0, 2)))
        ]
        count += len(came)
        present = [name for name in present if name not in went] + came
        steps.append(" ".join([*(f"-{name}" for name in went), *(f"+{name}" for name in came)]))
    rows = members_of(steps, pods)
    rollouts = find_rollouts(rows, {}, SETTINGS)
    assert rollouts == find_rollouts(data.draw(st.permutations(rows)), {}, SETTINGS)
    last = -1
    for rollout in rollouts:
        assert len(rollout.old) == len(rollout.new) >= 2
        assert not rollout.old & rollout.new
        assert rollout.log_offsets[0] > last
        last = rollout.log_offsets[-1]
