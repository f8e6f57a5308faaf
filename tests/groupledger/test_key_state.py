"""The state of a key between two replays, without Spark: any cut of its records gives the rows of one replay."""

from collections import defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from coordinator_core.errors import StateUnreadable
from groupledger import chunks
from groupledger.key_replay import MADE_OF, ReplayKey, ReplayTables
from groupledger.key_state import KEY_STATES, STATE_OFFSET, KeyState, begun
from schemas.consumer_offsets import TOPIC as GROUPS
from schemas.tables import TABLES
from tests.groupledger.conftest import Recorded
from tests.groupledger.days import Rows, is_final, merged, texts
from tests.groupledger.raw import RECORDINGS
from tests.groupledger.test_one_key import OF_GROUPS, OF_SHARES, SCHEMA, keyed
from tests.lengths import takes_minutes


def given(rows: Rows, key: tuple[Any, ...], state: bytes | None, random: Random) -> Iterator[pa.RecordBatch]:
    """Records of a key as Spark gives them: behind the row of their state, with the columns of the key."""
    names = ("log_partition", "group_id", "topic_id", "partition")[: len(key)]
    columns = dict(zip(names, key, strict=True))
    types = [("group_id", pa.string()), ("topic_id", pa.string()), ("partition", pa.int64())]
    schema = pa.schema([*SCHEMA, *types[: len(key) - 1]])
    first = [] if state is None else [{"log_offset": STATE_OFFSET, "value": state}]
    table = pa.Table.from_pylist([columns | row for row in [*first, *rows]], schema=schema)
    start = 0
    while start < len(table):
        size = random.randint(1, 40)
        yield from table.slice(start, size).to_batches()
        start += size


def made(
    replay: ReplayKey, rows: Rows, key: tuple[Any, ...], state: bytes | None, random: Random, *, is_later: bool
) -> dict[str, Rows]:
    """What a replay makes of records behind a state, by table."""
    later = {(None, key[0])} if is_later else set()
    begin, records = begun(given(rows, key, state, random), later)
    found: dict[str, Rows] = defaultdict(list)
    for table, some in replay(records, begin):
        found[table.full_name] += some.to_pylist()
    return found


def cuts_of(rows: Rows, random: Random) -> list[Rows]:
    """Three days anywhere; a day may come twice, and the end of the day before with the next one."""
    first, second = sorted(random.randint(0, len(rows)) for _ in range(2))
    days = [rows[:first], rows[random.randint(0, first) : second], rows[second:]]
    if random.random() < 0.3:
        days.insert(2, days[1])
    return days


@pytest.mark.parametrize("is_later", [False, True], ids=["whole", "later"])
@pytest.mark.parametrize(
    "recording",
    [name if name == "compact-partial" else pytest.param(name, marks=takes_minutes) for name in RECORDINGS],
)
def test_any_cut_gives_the_rows_of_one_replay(
    recorded: Recorded, recording: str, is_later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records of a key in three days, cut anywhere, also within an operation, with days that overlap or come twice:
    all tables in one pass, with the state for the next day, are those of one replay for each table."""
    random = Random(recording)
    monkeypatch.setattr(chunks, "CHUNK_ROWS_MIN", 16)
    _, records = recorded(recording)
    for (topic, *place), rows in keyed(records).items():
        key = tuple(place)
        tables, in_one_pass = OF_GROUPS if topic == GROUPS else OF_SHARES, ReplayTables(topic, MADE_OF[topic])
        days = cuts_of(rows, random)
        kept: dict[str, Rows] = {name: [] for name in tables}
        state: bytes | None = None
        for day in days:
            if not day and state is None:
                continue
            settled = -1 if state is None else KeyState.of(state).settled_offset
            last = -1 if state is None else KeyState.of(state).last_offset
            new = made(in_one_pass, day, key, state, random, is_later=is_later)
            (row,) = new[KEY_STATES.full_name]
            state = row["state"]
            if row["last_offset"] > last:
                for name in tables:
                    left = [row for row in kept[name] if is_final(row, settled)]
                    kept[name] = merged(left, new[name], TABLES[name])
        for name, replay in tables.items():
            expected = made(replay, rows, key, None, random, is_later=is_later)[name]
            assert texts(kept[name], name) == texts(expected, name), (key, name, [len(day) for day in days])


def test_other_bytes_are_no_state() -> None:
    """Damaged bytes are an error."""
    with pytest.raises(StateUnreadable):
        KeyState.of(b"\xff")
