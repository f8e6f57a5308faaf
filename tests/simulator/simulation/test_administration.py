"""What an admin does to share groups while they run, acquire modes, and classic members with assignors of their own."""

from typing import Any

import pytest

from simulator.simulation.clients.machine import Send
from simulator.simulation.clients.share_messages import ShareFetchRequest
from simulator.simulation.cluster import Respond
from simulator.simulation.process import Process
from simulator.simulation.share_leader import ShareLeaders
from tests.simulator.simulation.simulations import Run, run_file, run_text

MINUTE_MS = 60_000


@pytest.fixture(scope="module")
def run() -> Run:
    """The scenario `share-admin`."""
    return run_file("share-admin")


def since_start(run: Run, line: dict[str, Any]) -> int:
    return int(line["ts_ms"]) - run.simulation.scenario.start_ms


def test_a_delivery_limit_that_changes_holds_from_then_on(run: Run) -> None:
    """A record that is always released is given up at the fifth delivery, and from the change on at the second."""
    given_up = run.lines("archived", group="limits", why="DELIVERY_LIMIT")
    early = {line["delivery_count"] for line in given_up if since_start(run, line) < 3 * MINUTE_MS}
    late = {line["delivery_count"] for line in given_up if since_start(run, line) > 3 * MINUTE_MS + 15_000}
    assert (early, late) == ({5}, {2})


def test_a_lock_duration_that_changes_holds_for_records_acquired_later(run: Run) -> None:
    """Locks of 20 s run on; those taken after the change run out after 10 s."""
    acquired: dict[tuple[int, int], int] = {}
    waited: dict[bool, set[int]] = {False: set(), True: set()}
    lines = sorted(
        [*run.lines("deliveries", group="locks"), *run.lines("lock_timeouts", group="locks")],
        key=lambda line: (line["ts_ms"], "delivery_count" in line),
    )
    for line in lines:
        for offset in range(line["first_offset"], line["last_offset"] + 1):
            place = line["partition"], offset
            if "delivery_count" in line:
                acquired[place] = line["ts_ms"]
            else:
                at_ms = acquired[place]
                waited[at_ms - run.simulation.scenario.start_ms > 4 * MINUTE_MS].add(line["ts_ms"] - at_ms)
    assert waited == {False: {20_000}, True: {10_000}}


def test_a_record_limit_tears_batches_of_the_log(run: Run) -> None:
    """share.acquire.mode record_limit gives max.poll.records at most, batch_optimized whole batches."""
    polls: dict[tuple[int, int], int] = {}
    for line in run.lines("deliveries", group="locks"):
        poll = line["partition"], line["ts_ms"]  # each partition is led by a broker of its own
        polls[poll] = polls.get(poll, 0) + line["last_offset"] - line["first_offset"] + 1
    assert max(polls.values()) == 10
    text = '[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["t"]\nmax_poll_records = 10\n'
    head = {"rate = 40.0": "rate = 40.0\nbatch_records = 4"}
    whole = run_text(text, minutes=1, head=head)
    sizes = {line["last_offset"] - line["first_offset"] + 1 for line in whole.lines("deliveries", group="g")}
    assert max(sizes) == 12


def test_start_offsets_are_set_of_an_empty_group_alone(run: Run) -> None:
    """AlterShareGroupOffsets is refused while there are members; then records from there on are delivered again."""
    refused, taken = run.lines("faults", fault="alter_share_offsets")
    assert (refused["error"], taken["error"]) == ("NON_EMPTY_GROUP", None)
    again = [
        line
        for line in run.lines("deliveries", group="rewound", topic="jobs", partition=0)
        if since_start(run, line) > since_start(run, taken)
    ]
    assert min(line["first_offset"] for line in again) == 5
    assert again[0]["delivery_count"] == 1
    (end,) = [line for line in run.lines("end_share", group="rewound", partition=0) if line["state_epoch"] > 0][:1]
    assert end["start_offset"] > 5


def test_deleted_offsets_and_groups_are_gone(run: Run) -> None:
    """DeleteShareGroupOffsets: the topic is read from its beginning again; DeleteGroups: nothing of it is left."""
    (deleted,) = run.lines("faults", fault="delete_share_offsets")
    assert deleted["error"] is None
    again = [
        line["first_offset"]
        for line in run.lines("deliveries", group="rewound", topic="mails")
        if line["ts_ms"] > deleted["ts_ms"]
    ]
    assert min(again) == 0
    (gone,) = run.lines("faults", fault="delete_group")
    assert gone["error"] is None
    assert [line["what"] for line in run.lines("deletions", group="gone")] == ["GROUP"]
    assert not run.lines("end_share", group="gone") and not run.lines("end", group="gone")


def test_the_group_takes_an_assignor_that_all_support(run: Run) -> None:
    """By vote; who supports none of those is refused (INCONSISTENT_GROUP_PROTOCOL), and never a member."""
    generations = run.lines("generations", group="mixed")
    clients = {facts["client_id"] for line in generations for facts in line["members"].values()}
    assert clients == {"mixed-0", "mixed-1"}
    assert {line["protocol_name"] for line in generations if line["members"]} == {"range"}
    assert not run.simulation.processes["mixed-2"].is_alive
    swapped = run_text(
        '[[group]]\nname = "g"\ntopics = ["t"]\nmembers = 3\nstagger = "1ms"\n'
        'member_assignors = [["range", "roundrobin"], ["roundrobin", "range"], ["roundrobin"]]\n',
        minutes=1,
    )
    assert {line["protocol_name"] for line in swapped.lines("generations", group="g") if len(line["members"]) == 3} == {
        "roundrobin"
    }


def test_a_share_session_fetches_incrementally(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request that opens it has all partitions; later ones say what is new and what is forgotten, most of them
    nothing, and the broker serves what is in the session."""
    asked: list[ShareFetchRequest] = []
    serve = ShareLeaders.serve

    def noted(self: ShareLeaders, process: Process, broker_id: int, send: Send, answer: Respond) -> None:
        asked.append(send.request)
        serve(self, process, broker_id, send, answer)

    monkeypatch.setattr(ShareLeaders, "serve", noted)
    text = '[[topic]]\nname = "u"\nrate = 20.0\n[[group]]\nname = "g"\nprotocol = "share"\ntopics = ["t", "u"]\n'
    text += '[[fault]]\nkind = "subscribe"\nat = "1m"\ngroup = "g"\ntopics = ["u"]\n'
    run = run_text(text, minutes=2, head={"brokers = 3": "brokers = 1"})
    opening, *later = [request for request in asked if request.session_epoch >= 0]
    assert [str(at.topic) for at in opening.partitions] == ["t"] * 4 + ["u"]
    (changed,) = [request for request in later if request.partitions or request.forgotten]
    assert (changed.partitions, len(changed.forgotten)) == ((), 4)
    assert len(later) > 100
    changed_ms = run.simulation.scenario.start_ms + MINUTE_MS + 10_000
    assert {line["topic"] for line in run.lines("deliveries") if line["ts_ms"] > changed_ms} == {"u"}
