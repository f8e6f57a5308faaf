"""What `simulate --explain` tells: the conversation of a group in words, as lines and as a picture."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jobs.cli.app import main
from jobs.console.conversation import TIMES, Change, Conversation, Message, lines
from jobs.console.sequence_diagram import LANE_WIDTH, mermaid, svg
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError
from jobs.exit_codes import DONE, WRONG_ARGUMENTS
from jobs.laboratory.simulate import explain, simulate
from jobs.queries.sql.sql_duckdb import DuckDb
from schemas.tables import simulation
from simulator.simulation.simulation import Simulation, Summary

SLOW = "scenarios/slow-member.toml"
SVG = "{http://www.w3.org/2000/svg}"


def shown(group_id: str, span: tuple[str | None, str | None, str | None] = (None, None, None)) -> list[str]:
    return list(lines(explain(SLOW, group_id, span=span)))


def test_a_story_has_kafkas_names() -> None:
    """Of two members the leader is paused: the other one's SyncGroup waits, times out, and a second join begins."""
    said = [line[14:] for line in shown("paused-leader")]
    assert sum("MEMBER_ID_REQUIRED: join again as paused-leader-" in line for line in said) == 2
    begun = "group: Empty → PreparingRebalance (JoinGroup of paused-leader-0)"
    places = [
        next(place for place, line in enumerate(said) if wanted in line)
        for wanted in (
            begun,
            "group: PreparingRebalance → CompletingRebalance (the join phase ends)",
            "broker-1 → paused-leader-0  generation 1 by range; it leads paused-leader-0, paused-leader-1 (after 6 s)",
            "paused-leader-1 → broker-1  SyncGroup generation 1",
            "client paused-leader-1: SYNCING → UNJOINED (answer to sync: REQUEST_TIMED_OUT)",
            "broker-1 → paused-leader-1  REBALANCE_IN_PROGRESS (after 30.104 s)",
            "SyncGroup generation 2: paused-leader-0 orders 0..2; paused-leader-1 orders 3..5",
            "group: CompletingRebalance → Stable",
        )
    ]
    assert places == sorted(places)


def test_quiet_requests_are_one_line() -> None:
    """Heartbeats and commits that change nothing are counted, and those that repeat an error."""
    said = shown("mixed-pace", ("60s", "150s", None))
    assert any(re.search(rf"mixed-pace-1 → broker-2  Heartbeat {TIMES} 4 to 08:01:09", line) for line in said)
    assert any(re.search(rf"Heartbeat {TIMES} 11 to .*: REBALANCE_IN_PROGRESS", line) for line in said)


def test_wrong_groups_and_times_are_errors() -> None:
    """The nearest group, and the time of the scenario."""
    with pytest.raises(ArgumentError, match="no group 'mixed-pac' \\(did you mean 'mixed-pace'\\?\\)"):
        explain(SLOW, "mixed-pac")
    with pytest.raises(ArgumentError, match="says nothing in that time: the scenario is from 2026-01-13T08:00"):
        explain(SLOW, "mixed-pace", span=("7m", None, None))


def test_the_exchange_is_part_of_the_truth_where_asked(tmp_path: Path) -> None:
    """The files are those of the groups named; without any there are none."""
    simulate(SLOW, str(tmp_path / "with"), exchange=["mixed-pace"], span=(None, "90s", None))
    simulate(SLOW, str(tmp_path / "without"))
    requests, states = (
        [json.loads(line) for line in (tmp_path / "with" / "truth" / f"{name}.jsonl").read_text().splitlines()]
        for name in ("requests", "states")
    )
    assert {line["group"] for line in (*requests, *states)} == {"mixed-pace"}
    files = {path.name for path in (tmp_path / "with" / "truth").iterdir()}
    assert files - {path.name for path in (tmp_path / "without" / "truth").iterdir()} == {
        "requests.jsonl",
        "states.jsonl",
    }


def test_the_command_tells_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--explain needs no folder; --diagram writes what its name says."""
    for name, begin in (("story.svg", "<svg"), ("story.mmd", "sequenceDiagram")):
        path = tmp_path / name
        assert main(["simulate", "--scenario", SLOW, "--explain", "paused-leader", "--diagram", str(path)]) == DONE
        assert capsys.readouterr().out.startswith("Group paused-leader: 2 clients, ")
        assert path.read_text(encoding="utf-8").startswith(begin)


def test_a_story_that_is_written_is_simulated_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --output the story is read from the truth in that folder: in the same words."""
    runs: list[Simulation] = []
    run = Simulation.run

    def counted(simulation: Simulation) -> Summary:
        runs.append(simulation)
        return run(simulation)

    monkeypatch.setattr(Simulation, "run", counted)
    words = ["simulate", "--scenario", SLOW, "--explain", "paused-leader", "--from", "10s", "--to", "60s"]
    assert main(words) == DONE
    alone = capsys.readouterr().out
    assert main([*words, "--output", str(tmp_path / "both"), "--exchange", "mixed-pace"]) == DONE
    assert capsys.readouterr().out == alone
    assert len(runs) == 2
    assert main([*words[:3], "--explain", "*", "--output", str(tmp_path / "none")]) == WRONG_ARGUMENTS
    assert not (tmp_path / "none").exists()


def test_an_exchange_is_tables_too(tmp_path: Path) -> None:
    """Each line is a row that `sql` finds, with Kafka's fields in JSON; times are those of the lines."""
    simulate("scenarios/story-share.toml", str(tmp_path / "all"), exchange=["*"])
    warehouse = Warehouse(str(tmp_path / "all" / "warehouse"))
    for table, file in ((simulation.REQUESTS, "requests"), (simulation.STATES, "states")):
        lines = (tmp_path / "all" / "truth" / f"{file}.jsonl").read_text().splitlines()
        assert warehouse.read(table).num_rows == len(lines) > 20
    sql = DuckDb(warehouse)
    (refused,) = sql.rows_of(
        "select why, cluster_id from simulation.states where to_state = $1 and group_id = 'forgetful'", "FAILED"
    )
    assert refused["why"].startswith("IllegalStateException")
    assert refused["cluster_id"] == "story-share"
    waits = sql.rows_of(
        "select waited_ms, epoch_ms(answered_at) - epoch_ms(asked_at) as between_ms, "
        "json_extract_string(request, '$.shareSessionEpoch') as epoch from simulation.requests "
        "where api = 'ShareFetch' order by number"
    )
    assert waits
    assert all(row["waited_ms"] == row["between_ms"] for row in waits)
    assert {"0", "1", "2"} <= {row["epoch"] for row in waits}
    skipped = sql.rows_of("select count, answered_at, last_at from simulation.requests where last_at is not null")
    assert skipped
    assert {row["answered_at"] for row in skipped} == {None}


HOSTILE = Conversation(
    "a <b> & \x1b[31m",
    ["<c>;#", "d"],
    ["broker-1"],
    [
        Message(1, "<c>;#", "broker-1", "JoinGroup", "x; y # <z> " + "long " * 40),
        Message(3001, "broker-1", "<c>;#", "JoinGroup", "later", is_answer=True, waited_ms=3000),
        Message(3002, "broker-1", "broker-1", "ReadShareGroupState"),
        Message(3003, "d", "broker-1", "LeaveGroup", confidence="LIKELY"),
        Change(3004, "", "group", "Empty", "Stable", "the & reason"),
        Change(3005, "d", "client d", "NONE", "JOINING"),
        *(Message(4000 + at, "d", "broker-1", "Heartbeat", is_quiet=True) for at in range(1000)),
    ],
)


def test_no_text_of_one_lane_reaches_the_next_lifeline() -> None:
    """Over an arrow, at what a broker asks itself, or of a change. In the font of pages, letters are 6.2 pixels wide on
    average."""
    long = "a text of usual letters that does not end " * 9
    events: list[Message | Change] = [
        Message(1, "a", "broker-1", "JoinGroup", long),
        Message(2, "broker-1", "broker-1", "ReadShareGroupState", long),
        Change(3, "a", "client a", "NONE", "JOINING", long),
    ]
    root = ElementTree.fromstring(svg(Conversation("t", ["a"], ["broker-1"], events)))
    lanes = [float(it.attrib["x1"]) for it in root.iter(f"{SVG}line") if it.get("class") == "l"]
    drawn = [
        (float(it.attrib["x"]), it.text or "") for it in root.iter(f"{SVG}text") if (it.text or "").endswith("...")
    ]
    assert len(drawn) == 3
    for left, text in drawn:
        behind = min((x for x in lanes if x > left), default=lanes[-1] + LANE_WIDTH)
        assert left + 6.2 * len(text) <= behind


def test_a_picture_is_whole_without_scripts() -> None:
    """It is well-formed whatever ids say; all events are in it, a wait is a bar, what is inferred is dashed, and a
    thousand heartbeats are one arrow."""
    root = ElementTree.fromstring(svg(HOSTILE))
    texts = ["".join(element.itertext()) for element in root.iter(f"{SVG}text")]
    assert "<c>;#" in texts
    assert any(text.startswith("JoinGroup x; y # <z> long") for text in texts)
    assert [text for text in texts if "Heartbeat" in text] == [f"Heartbeat {TIMES} 1,000 to 00:00:04.999"]
    assert not list(root.iter(f"{SVG}script"))
    arrows = [line.get("class", "") for line in root.iter(f"{SVG}line") if line.get("class", "").startswith("a")]
    assert len(arrows) == 4  # a broker that asks itself is a loop
    assert ["d" in kind.split() for kind in arrows] == [False, False, True, False]
    bars = [rect for rect in root.iter(f"{SVG}rect") if rect.get("class") == "w"]
    assert len(bars) == 1
    assert "\x1b" not in svg(HOSTILE)


def test_mermaid_reads_no_text_as_its_own() -> None:
    """Semicolons end a statement, and a hash begins an entity; loops are loops, and what is inferred is dotted."""
    text = mermaid(HOSTILE)
    assert "participant p0 as <c>#59;#35;" in text
    assert "x#59; y #35; <z>" in text
    assert f"  loop Heartbeat {TIMES} 1,000 to 00:00:04.999\n    p1->>p2: Heartbeat\n  end\n" in text
    assert "p1-->>p2: 00:00:03.003 LeaveGroup [LIKELY]" in text
