"""A simulated log carries the scenario's own settings: a night judges by them, with nothing in the environment."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.cases.scenario_truth import lock_timeouts, ms, places
from tests.scenarios import lived, text_of

NEAR_MS: Final = 100
"""From a coordinator's action to the record of it, at most."""


def test_lock_time_outs_and_the_delivery_limit_are_those_of_the_scenario(tmp_path: Path) -> None:
    """What is called a lock time-out was one; all are named that were acquired as a record says, by one leader. In
    `share-poison` the lock lasts 15 s, and records are delivered four times at most; here a member that polls takes at
    once what another one let go."""
    text = text_of("share-poison").replace("members = 1\n", "members = 8\n")
    text = text.replace('"time_out"\npoll_interval = "3s"', '"time_out"\npoll_interval = "500ms"')
    text = text.replace('duration = "30m"', 'duration = "16m"').partition('[[fault]]\nkind = "stop"')[0]
    scenario = lived(text, tmp_path / "patience")
    assert scenario.night.exit_code == 0, scenario.night.text
    ended = lock_timeouts(scenario)
    acquired = defaultdict(list)
    for line in scenario.truth("deliveries"):
        for place in places(line, line["group"]):
            acquired[place].append(line["ts_ms"])
    shown = defaultdict(list)
    for row in scenario.rows("gold.redeliveries"):
        for place in places(row, row["group_id"]):
            shown[place].append(ms(row["at"]))
    archived = scenario.rows("gold.archived_records")
    assert {row["delivery_count_limit"] for row in archived} == {4}
    seen = named = 0
    for row in scenario.rows("gold.redeliveries") + archived:
        is_named = row["likely_cause"] == "LOCK_TIMEOUT" or row["method"] == "LOCK_DURATION"
        for place in places(row, row["group_id"]):
            is_true = any(abs(at_ms - ms(row["at"])) <= NEAR_MS for at_ms in ended[place])
            assert is_true or not is_named
            # when it was acquired no log tells, unless that was as soon as it was handed back, by the same leader
            is_seen = row.get("from_delivery_count", row.get("delivery_count")) is not None
            acquired_ms = max((at_ms for at_ms in acquired[place] if at_ms < ms(row["at"]) - NEAR_MS), default=0)
            is_seen &= any(abs(at_ms - acquired_ms) <= NEAR_MS for at_ms in shown[place])
            is_seen &= not row.get("leader_changed", False)
            assert is_named or not (is_true and is_seen), row
            named += is_named
            seen += is_true and is_seen
    assert named > 100
    assert seen > 10


def test_topics_groups_and_transactions_are_in_the_logs(tmp_path: Path) -> None:
    """The controller's log names topics and counts their partitions; transactional ids have a log of their own."""
    text = text_of("exactly-once").replace('duration = "20m"', 'duration = "5m"')
    scenario = lived(text.partition('[[fault]]\nkind = "pause"')[0], tmp_path / "exactly-once")
    assert scenario.night.exit_code == 0, scenario.night.text
    counts = {row["topic"]: row["partition_count"] for row in scenario.rows("silver.partition_counts")}
    frame = json.loads((scenario.folder / "truth" / "scenario.json").read_text())
    assert counts["__consumer_offsets"] == frame["consumer_offsets_partitions"]
    assert counts.items() >= {line["topic"]: line["partition_count"] for line in scenario.truth("topics")}.items()
    assert {row["topic_id"]: row["topic"] for row in scenario.rows("silver.topics")}.items() >= {
        line["topic_id"]: line["topic"] for line in scenario.truth("topics")
    }.items()
    ends = {(line["topic"], line["partition"]): line["end_offset"] for line in scenario.truth("log_ends")}
    assert sum(end for (topic, _), end in ends.items() if topic == "__transaction_state") > len(
        list(scenario.truth("transactions"))
    )
