"""Racks of members and brokers in scenarios: what client assignors do with them, and what the records say."""

from typing import Final

import pytest

from simulator.simulation.topics import replicas_of
from tests.simulator.simulation.simulations import Run, run_file

BROKERS: Final = 4
NORTH: Final = 1
SOUTH: Final = 2
"""The only brokers of these racks; the two others are on racks of nobody."""


@pytest.fixture(scope="module")
def run() -> Run:
    """The shipped scenario: the broker in the south is gone from minute 2 to 3."""
    return run_file("racks")


def near(broker: int) -> set[int]:
    """The partitions of `orders` with a replica on a broker: three of four have one."""
    return {number for number in range(8) if broker in replicas_of("orders", number, BROKERS)}


def owned(run: Run, group: str, generation: int) -> dict[str, set[int]]:
    """Client -> partitions of a generation, as its record has them."""
    (line,) = run.lines("generations", group=group, generation=generation)
    return {
        member["client_id"]: {number for _, numbers in member["assignment"] for number in numbers}
        for member in line["members"].values()
    }


@pytest.mark.parametrize("group", ["range-near", "sticky-near"])
def test_a_leader_joins_again_when_the_racks_of_replicas_change(run: Run, group: str) -> None:
    """Once when the broker is fenced and once when it is back; a leader without a rack takes no notice."""
    assert run.causes(group)[2:] == [["TOPIC_CHANGED"], ["TOPIC_CHANGED"]]
    faults = [line["fault"] for line in run.truth["faults"]]
    for line in run.lines("generations", group=group)[2:]:
        assert faults[line["causes"][0]["fault"]] == "broker_failover"
    assert run.causes("anywhere")[2:] == []


def test_assignors_of_clients_go_by_racks(run: Run) -> None:
    """Members have partitions with a replica on their rack, whoever would have them without racks; while no replica is
    in the south that decides in the north alone, and then all is as before."""
    first, without, again = (owned(run, "range-near", generation) for generation in (1, 2, 3))
    assert first["range-near-0"] <= near(SOUTH)
    assert first != owned(run, "anywhere", 1)
    assert without["range-near-1"] <= near(NORTH)
    assert not first["range-near-1"] <= near(NORTH)
    assert again == first
    sticky = owned(run, "sticky-near", 1)
    assert sticky["sticky-near-0"] <= near(NORTH)
    assert sticky["sticky-near-1"] <= near(SOUTH)


def test_records_of_members_have_their_rack(run: Run) -> None:
    """Consumer and share members say theirs when they join (ConsumerGroupMemberMetadataValue.rackId)."""
    states = {line["group"]: line["state"]["group"] for line in run.lines("end")}
    for group, racks in (("consumer-racks", ["north", "south", "north"]), ("share-racks", ["south", "south"])):
        members = states[group]["members"]
        found = {member["clientId"]: member["rackId"] for member in members.values()}
        assert found == {f"{group}-{index}": rack for index, rack in enumerate(racks)}
