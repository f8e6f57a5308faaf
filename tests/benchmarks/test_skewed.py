"""Small logs of each skewed shape, replayed: what comes of them follows from their numbers."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from coordinator_core.bytes.log.chunk import RecordChunk
from coordinator_core.bytes.log.records import decode_chunk
from coordinator_core.bytes.log.scan import scan_segment
from coordinator_core.history.offsets_log import OffsetsLogReplay
from coordinator_core.history.rows import AssignmentRow, GenerationRow, MemberRow
from coordinator_core.replay.columnar.offsets_columnar import CHANGES, CommitColumns
from coordinator_core.replay.columnar.share_state_columnar import ColumnarOutput, ColumnarShareReplay
from coordinator_core.replay.columnar.share_state_rows import TRANSITION_KINDS
from tests.benchmarks import skewed


def _logs(folder: Path, piece_count: int = 3) -> Iterator[list[RecordChunk]]:
    """Each log partition in some pieces, cut at batches."""
    for segment in sorted(folder.glob("*/*.log")):
        data = np.fromfile(segment, np.uint8)
        scan = scan_segment(data, base_offset=0, is_last=True)
        assert not scan.findings
        cuts = [*scan.batches.position[:: max(1, len(scan.batches) // piece_count)].tolist(), len(data)]
        yield [decode_chunk(data[first:end]) for first, end in pairwise(cuts)]


def _commits(folder: Path) -> list[CommitColumns]:
    commits = []
    for chunks in _logs(folder):
        replay = OffsetsLogReplay()
        outputs = [*map(replay.feed, chunks), replay.finish()]
        assert not any(output.findings for output in outputs)
        commits += [output.commits for output in outputs]
    return commits


def test_one_group_moves_on_in_all_its_partitions(tmp_path: Path) -> None:
    """All commits of the one group are applied, and each is some steps ahead of the one before it."""
    count = skewed.SHAPES["one group"](tmp_path, 2_000)
    found: Counter[str] = Counter()
    steps = set[int]()
    for commits in _commits(tmp_path):
        found.update(CHANGES[code] for code in commits.change.tolist())
        is_on = commits.change == CHANGES.index("ADVANCE")
        steps.update((commits.committed_offset - commits.previous_offset)[is_on].tolist())
    assert steps == {11, 18}
    assert found == {"FIRST": skewed.PARTITION_COUNT, "ADVANCE": count - skewed.PARTITION_COUNT}


def test_many_groups_have_three_commits_each(tmp_path: Path) -> None:
    """Each group has its three commits and nobody else's."""
    count = skewed.many_groups(tmp_path, 400)
    found: dict[str, list[int]] = {}
    for commits in _commits(tmp_path):
        for group, offset in zip(commits.group.tolist(), commits.committed_offset.tolist(), strict=True):
            found.setdefault(commits.groups[group], []).append(offset)
    assert count == 1_200
    assert set(found) == {f"{number:09}" for number in range(400)}
    assert set(map(tuple, found.values())) == {(100, 200, 300)}


def test_members_of_a_large_group_come_and_go(tmp_path: Path) -> None:
    """One generation a record; whoever is not in the next one has gone, and each member's partition changes with it."""
    members, generations = 60, 5
    skewed.large_group(tmp_path, members, generations)
    (chunks,) = _logs(tmp_path)
    replay = OffsetsLogReplay()
    outputs = [*map(replay.feed, chunks), replay.finish()]
    made: list[GenerationRow] = [row for output in outputs for row in output.groups.generations]
    lives: list[MemberRow] = [row for output in outputs for row in output.groups.members]
    owned: list[AssignmentRow] = [row for output in outputs for row in output.groups.assignments]
    assert [row.member_count for row in made] == [members] * generations
    assert len({row.member_id for row in lives}) == members + skewed.LEAVING_COUNT * (generations - 1)
    assert sum(row.valid_to is None for row in lives) == members
    assert len(owned) == members * generations
    assert {row.partition for row in owned} == set(range(members))


def test_a_hot_share_partition_has_a_fifth_of_all_records(tmp_path: Path) -> None:
    """Every other state batch is done with; the others are passed over by the next snapshot, in the hot one as in all
    the others."""
    count = skewed.hot_share_partition(tmp_path, 50_000, key_count=1)
    kinds: Counter[str] = Counter()
    hot_count = interval_count = 0
    for chunks in _logs(tmp_path):
        columnar = ColumnarShareReplay()
        outputs: list[ColumnarOutput] = [*map(columnar.feed, chunks), columnar.finish()]
        assert not any(output.findings for output in outputs)
        for output in outputs:
            kinds.update(TRANSITION_KINDS[code] for code in output.transitions.kind.tolist())
            hot_count += sum(output.keys[key].partition == 1 for key in output.partition_states.key.tolist())
            interval_count += int((output.partition_states.record_kind == 0).sum())
    places = skewed.UPDATES_PER_SNAPSHOT * skewed.STATE_BATCHES_PER_UPDATE // 2
    passed_count = interval_count - len(list(tmp_path.glob("*"))) - 1
    assert interval_count * skewed.RECORDS_PER_SNAPSHOT == count
    assert hot_count == 50_000 // skewed.HOT_SHARE
    assert kinds == {
        "REDELIVERABLE": places * interval_count,
        "ACKNOWLEDGED": places * interval_count,
        "PASSED": places * passed_count,
    }
