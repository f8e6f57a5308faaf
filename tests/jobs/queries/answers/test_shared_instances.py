"""Static members that put each other out, and those that were only started again."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pyarrow as pa
import pytest

from jobs.delta.replay_runs import WholeRun
from jobs.queries.answers.shared_instances import shared_instances

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)


class Members:
    """Rows of members that were replaced, as a whole run has them."""

    def __init__(self, places: str, stay: timedelta) -> None:
        self._rows = [
            {
                "group_id": "g",
                "instance_id": "i",
                "client_id": f"pod-{place}",
                "client_host": "/h",
                "from_log_offset": number,
                "valid_from": BEGIN + number * stay,
                "valid_to": BEGIN + (number + 1) * stay,
            }
            for number, place in enumerate(places)
        ]

    def read(self, table: object, columns: list[str], **where: Any) -> pa.Table:
        assert where == {"ended_by": "REPLACED_STATIC"}
        return pa.Table.from_pylist(self._rows).select(columns)


@pytest.mark.parametrize(
    ("places", "stay", "count"),
    [
        pytest.param("aba", timedelta(seconds=10), 3, id="there, back and there again"),
        pytest.param("ababababab", timedelta(minutes=5), 10, id="for long"),
        pytest.param("abcabc", timedelta(seconds=10), 6, id="three processes"),
        pytest.param("aaaaaa", timedelta(seconds=10), 0, id="one that restarts"),
        pytest.param("abcdef", timedelta(seconds=10), 0, id="one that moves on"),
        pytest.param("ab", timedelta(seconds=10), 0, id="a move"),
        pytest.param("ababab", timedelta(days=1), 0, id="moves, a day apart"),
    ],
)
def test_who_comes_back_again_and_again_is_another_process(places: str, stay: timedelta, count: int) -> None:
    """Not one that is started again, nor one that is moved."""
    run = cast("WholeRun", Members(places, stay))
    assert sum(it.replaced_count for it in shared_instances(run)) == count
    end_ms = round((BEGIN + len(places) * stay).timestamp() * 1000)
    assert shared_instances(run, end_ms + 1) == []
