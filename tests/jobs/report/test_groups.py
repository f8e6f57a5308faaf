"""Pictures of groups: commits in bins of time that are as wide as it takes."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.report.cluster import BIN_WIDTHS_MS
from jobs.report.groups import BINS_MAX, Bins

MANY = 400
COMMITS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 1), st.integers(0, 100)), min_size=1, max_size=8)


def test_wide_bins_hold_narrow_ones() -> None:
    """Each width is a multiple of the one before: narrow bins never lie across the edge of a wider one."""
    assert all(wide % narrow == 0 for narrow, wide in pairwise(BIN_WIDTHS_MS))


@settings(max_examples=30)
@given(COMMITS, st.integers(1, 5))
def test_bins_count_all(commits: list[tuple[int, int, int]], pieces: int) -> None:
    """However the commits come in, in which pieces and order, the bins are those of all of them at once."""
    changes = ["ADVANCE", "REWIND"]
    # each is repeated, so that there are more seconds with commits than there may be bins
    commits = [(at_ms + 1_000 * second, code, delta) for at_ms, code, delta in commits for second in range(MANY)]
    whole, in_pieces = Bins(), Bins()
    columns = [np.array(values, np.int64) for values in zip(*commits, strict=True)]
    whole.add(columns[0], changes, *columns[1:])
    for part in range(pieces):
        at_ms, codes, delta = (column[part::pieces] for column in columns)
        if len(at_ms):
            in_pieces.add(at_ms, changes, codes, delta)
    assert in_pieces.rows() == whole.rows() and in_pieces.width_ms == whole.width_ms
    assert len(whole.rows()) <= BINS_MAX
    assert sum(count for _, count, *_ in whole.rows()) == len(commits)
    assert sum(ahead for *_, ahead, _ in whole.rows()) == sum(delta for _, code, delta in commits if code == 0)
    assert sum(rewinds for *_, rewinds in whole.rows()) == sum(code for _, code, _ in commits)
