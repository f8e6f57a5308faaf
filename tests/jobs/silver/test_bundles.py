"""Audits that read few groups at a time keep of each group what audits keep that read all at once."""

from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any, Final

import pytest

from coordinator_core.bytes.log.batch import build_batch
from jobs.gold import audit_groups
from jobs.gold.group_checkpoints import SavedGroups
from jobs.silver import bundles as silver_bundles
from tests.cases.harness import Ledger
from tests.coordinator_core.replay.test_key_buckets import commit
from tests.jobs.builders import write_segment

TOPIC: Final = "__consumer_offsets"
MINUTE_MS: Final = 60_000


def kept(ledger: Ledger) -> dict[str, int]:
    """By group, how many commits the last audit kept of it."""
    (row,) = ledger.rows("state.audited_logs")
    commits = SavedGroups.unpacked(row["state"]).commits
    counts: dict[str, int] = {}
    for code in commits.group.tolist():
        counts[commits.group_ids[code]] = counts.get(commits.group_ids[code], 0) + 1
    return counts


def test_a_group_without_new_commits_keeps_its_own_whatever_others_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New commits of others that are read a few groups at a time take nothing from it."""
    monkeypatch.setattr(silver_bundles, "BUNDLE_WEIGHT_MAX", 20)

    def of_new_commits(*arguments: Any, **options: Any) -> Iterator[Set[str] | None]:
        # a file of silver may name groups of which it has no commits, or not
        for some in silver_bundles.bundles(*arguments, **options):
            if some != {"a"}:
                yield some

    monkeypatch.setattr(audit_groups, "bundles", of_new_commits)
    names = [b"a", b"b", b"c", b"d"]
    first = [commit(offset, name, MINUTE_MS) for offset, name in enumerate(names)]
    then = [commit(4 + offset, names[1 + offset % 3], (2 + offset) * MINUTE_MS) for offset in range(60)]
    ledger = Ledger(tmp_path / "warehouse")
    for number, records in enumerate((first, then), 1):
        logs = tmp_path / f"logs-{number}"
        data = b"".join(build_batch([record]) for record in records)
        write_segment(logs, TOPIC, 0, records[0].offset, data)
        assert ledger.night(logs, number=number).exit_code == 0
    assert kept(ledger).keys() == {"a", "b", "c", "d"}
