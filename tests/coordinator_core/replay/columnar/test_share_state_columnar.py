"""The compiled columnar replay against the plain reference, over any log and however it is cut."""

import random
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator_core.bytes import codec
from coordinator_core.errors import ColumnarReplayError, DecodeError, ReplayFault, UnknownRecordType
from coordinator_core.replay.columnar import share_state_columnar as columnar_module
from coordinator_core.replay.columnar.share_state_columnar import (
    ColumnarCounts,
    ColumnarShareReplay,
    delivery_state_name,
)
from coordinator_core.replay.lookup import SharePartitionKey
from coordinator_core.replay.share_state.combine import StateBatch
from coordinator_core.replay.share_state.state import ShareSnapshot, ShareUpdate
from schemas.share_group_state import SHARE_UPDATE_KEY, TOPIC
from tests.coordinator_core.live.share_state.reference import (
    Event,
    Raw,
    Rows,
    chunk_of,
    columnar_outputs,
    columnar_rows,
    expected_rows,
)
from tests.examples import examples

KEYS = (SharePartitionKey("g", "AAAAAAAAAAAAAAAAAAAAAQ", 0), SharePartitionKey("g:2", "BBBBBBBBBBBBBBBBBBBBBA", 7))
OFFSET_MAX = 2**63 - 1
EPOCHS = st.integers(0, 2)
COUNTS = st.sampled_from([-1, 0, 0, 5])


def events(base: int) -> st.SearchStrategy[Event]:
    """Records of two share partitions, sensible and not, with offsets of `base` to `base + 30`."""
    batches = st.lists(
        st.builds(
            lambda first, length, state, count: StateBatch(
                base + first, min(base + first + length, OFFSET_MAX), state, count
            ),
            st.integers(-1, 24),
            st.integers(-1, 6),
            st.sampled_from([0, 0, 2, 2, 4, 3, 1, -7]),
            st.integers(-1, 3),
        ),
        max_size=6,
    ).map(tuple)
    fine_batches = st.lists(st.integers(0, 30), max_size=8, unique=True).flatmap(
        lambda cuts: st.tuples(
            *(
                st.builds(
                    StateBatch,
                    st.just(base + first),
                    st.just(base + end - 1),
                    st.sampled_from([0, 2, 4]),
                    st.integers(1, 3),
                )
                for first, end in list(pairwise(sorted(cuts)))[::2]
            )
        )
    )
    start_offsets = st.just(-1) | st.integers(base, base + 20)
    snapshots = st.builds(
        ShareSnapshot,
        snapshot_epoch=EPOCHS,
        state_epoch=st.integers(0, 1),
        leader_epoch=EPOCHS,
        start_offset=start_offsets,
        delivery_complete_count=COUNTS,
        create_timestamp_ms=st.sampled_from([0, 5, 6]),
        write_timestamp_ms=st.sampled_from([0, 6]),
        state_batches=st.just(()) | fine_batches | batches,
    )
    updates = st.builds(
        ShareUpdate,
        snapshot_epoch=EPOCHS,
        leader_epoch=st.integers(-1, 2),
        start_offset=start_offsets,
        delivery_complete_count=COUNTS,
        state_batches=fine_batches | batches,
    )
    return st.builds(
        Event,
        key=st.sampled_from(KEYS),
        value=st.one_of(updates, updates, updates, snapshots, st.none()),
        unknown_tags=st.sampled_from([(), (), (), ((3, b"later"),)]),
    )


LOGS = st.sampled_from([0, 0, OFFSET_MAX - 30]).flatmap(lambda base: st.lists(events(base), min_size=1, max_size=25))


def placed(log: list[Event]) -> list[tuple[int, int, Event]]:
    return [(100 + 3 * i, 10_000 + 7 * i, event) for i, event in enumerate(log)]


def check(rows: Rows, expected: Rows) -> None:
    assert rows.states == expected.states
    assert rows.transitions == expected.transitions
    assert rows.batches == expected.batches
    assert sorted(rows.findings) == sorted(expected.findings)


@settings(examples(3), suppress_health_check=[HealthCheck.too_slow])
@given(LOGS, st.sets(st.integers(0, 25)), st.booleans())
def test_columnar_replay_gives_the_rows_of_the_reference(log: list[Event], cuts: set[int], is_resumed: bool) -> None:
    """Any log, cut into chunks anywhere, in one run or in one run a chunk: always the reference's rows."""
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    bounds = sorted({0, len(raw), *(cut for cut in cuts if cut <= len(raw))})
    chunks = [chunk_of(raw[start:end]) for start, end in pairwise(bounds)]
    outputs = columnar_outputs(chunks, is_resumed=is_resumed)
    check(columnar_rows(outputs), expected_rows(placed(log)))
    tombstones = sum(1 for event in log if event.value is None)
    assert sum(output.counts.tombstones for output in outputs) == tombstones
    assert sum(output.counts.decoded for output in outputs) == len(log) - tombstones


def walk(seed: int, record_count: int) -> list[Event]:
    """Share partitions at work: start offsets move, acknowledgements fall here and there, hundreds are in flight."""
    rng = random.Random(seed)
    log: list[Event] = []
    starts = dict.fromkeys(KEYS, 0)
    for number in range(record_count):
        key = rng.choice(KEYS)
        if rng.random() < 0.3:
            starts[key] += rng.randrange(25)
        start = starts[key]
        spread = rng.choice([5, 100, 900])
        firsts = sorted(start + rng.randrange(spread) for _ in range(rng.randrange(1, rng.choice([3, 40]))))
        batches = tuple(
            StateBatch(
                first, min(first + rng.randrange(4), following - 1), rng.choice([0, 2, 2, 4]), rng.randrange(1, 4)
            )
            for first, following in pairwise([*firsts, OFFSET_MAX])
            if following > first
        )
        value: ShareSnapshot | ShareUpdate | None = ShareUpdate(0, 3, start, 0, batches)
        if number < 2 or rng.random() < 0.01:
            value = ShareSnapshot(0, 1, 3, start, 0, 5, 5, batches)
        elif rng.random() < 0.005:
            value = None
        log.append(Event(KEYS[number] if number < 2 else key, value))
    return log


@pytest.mark.nights
@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_batches_in_flight(seed: int) -> None:
    """Long lists are spliced in place, moved to either side, and outgrow their room."""
    log = walk(seed, 400)
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    outputs = columnar_outputs([chunk_of(raw[:150]), chunk_of(raw[150:])])
    assert max(output.partition_states.batch_count.max() for output in outputs) > 150
    check(columnar_rows(outputs), expected_rows(placed(log)))


def test_a_window_which_shrinks_before_the_next() -> None:
    """Twenty batches become one, and the next batch of the same record is still looked for in the right place."""
    state = tuple(StateBatch(first, first, 0, 1 + first // 2 % 2) for first in range(0, 60, 2))
    change = (StateBatch(0, 39, 2, 3), StateBatch(56, 56, 2, 3))
    log = [Event(KEYS[0], ShareUpdate(0, 0, 0, 0, state)), Event(KEYS[0], ShareUpdate(0, 0, 0, 0, change))]
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    check(columnar_rows(columnar_outputs([chunk_of(raw)])), expected_rows(placed(log)))


def test_a_window_of_batches_slides_through_its_room() -> None:
    """Batches leave in front and come behind, for far longer than there is room, and do not reach the neighbour's."""

    def slide(number: int) -> Event:
        batch = StateBatch(2 * number + 20, 2 * number + 20, 2, 1)
        return Event(KEYS[0], ShareUpdate(0, 0, 2 * number, 0, (batch,)))

    neighbour = tuple(StateBatch(first, first, 0, 1) for first in range(0, 40, 2))
    log = [slide(number) for number in range(20)]
    log.append(Event(KEYS[1], ShareUpdate(0, 0, 0, 0, neighbour)))
    log += [slide(number) for number in range(20, 300)]
    log.append(Event(KEYS[1], ShareUpdate(0, 0, 0, 0, (StateBatch(5, 5, 2, 1),))))
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    check(columnar_rows(columnar_outputs([chunk_of(raw)])), expected_rows(placed(log)))


def test_a_record_of_many_overlapping_batches() -> None:
    """One record may hold as many batches as a batch of the log has bytes for, in any order."""
    rng = random.Random(7)
    firsts = [rng.randrange(5000) for _ in range(3000)]
    batches = tuple(
        StateBatch(first, first + rng.randrange(60), rng.choice([0, 2, 4]), rng.randrange(4)) for first in firsts
    )
    log = [
        Event(KEYS[0], ShareUpdate(0, 0, 10, -1, batches)),
        Event(KEYS[0], ShareSnapshot(1, 0, 0, 20, 0, 1, 1, batches)),
    ]
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    check(columnar_rows(columnar_outputs([chunk_of(raw)])), expected_rows(placed(log)))


def test_overlapping_batches_up_to_the_last_offset() -> None:
    """There is no offset behind the last one to go on from."""
    batches = (
        StateBatch(OFFSET_MAX - 1, OFFSET_MAX, 0, 1),
        StateBatch(OFFSET_MAX - 9, OFFSET_MAX, 2, 1),
        StateBatch(OFFSET_MAX - 5, OFFSET_MAX - 4, 0, 2),
    )
    log = [Event(KEYS[0], ShareUpdate(0, 0, -1, -1, batches))]
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    check(columnar_rows(columnar_outputs([chunk_of(raw)])), expected_rows(placed(log)))


def test_thousands_of_share_partitions() -> None:
    """Keys, their batches and their tombstones all outgrow their room, and the rows are the same."""
    keys = [SharePartitionKey(f"group-{number}", KEYS[0].topic_id, number) for number in range(3000)]
    log = [Event(key, None) for key in keys]
    log += [Event(key, ShareUpdate(0, 0, -1, -1, (StateBatch(key.partition, key.partition, 2, 1),))) for key in keys]
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    outputs = columnar_outputs([chunk_of(raw)])
    assert len(outputs[-1].keys) == len(keys)
    assert [outputs[-1].keys[number] for number in range(3000)] == keys
    check(columnar_rows(outputs), expected_rows(placed(log)))


def test_many_rows_of_few_bytes() -> None:
    """A reset is a small record which ends every batch: more rows than a chunk's bytes let expect."""
    batches = tuple(StateBatch(first, first, 0, 1) for first in range(0, 600, 2))
    pair = [
        Event(KEYS[0], ShareSnapshot(0, 0, 1, 0, 0, 1, 1, batches)),
        Event(KEYS[0], ShareSnapshot(0, 0, 0, 0, 0, 1, 1, ())),
    ]
    log = pair * 20
    raw = [(offset, at, event.encoded()) for offset, at, event in placed(log)]
    check(columnar_rows(columnar_outputs([chunk_of(raw)])), expected_rows(placed(log)))


def update(first: int, last: int) -> Event:
    return Event(KEYS[0], ShareUpdate(0, 0, 0, -1, (StateBatch(first, last, 0, 1),)))


VALUE = update(0, 4).encoded().value or b""
KEY = update(0, 4).encoded().key or b""
TAGGED_BATCH = VALUE[:-2] + b"\x01\x05\x01x" + VALUE[-1:]

LEDGER = [
    pytest.param(Raw(KEY, VALUE), ColumnarCounts(decoded=1), None, id="update"),
    pytest.param(Raw(KEY + b"behind", VALUE + b"behind"), ColumnarCounts(decoded=1), None, id="bytes-behind"),
    pytest.param(
        Raw(KEY, TAGGED_BATCH), ColumnarCounts(decoded=1, unknown_field=1), None, id="a-batch-with-an-unknown-tag"
    ),
    pytest.param(Raw(KEY, VALUE, is_control=True), ColumnarCounts(control=1), None, id="control"),
    pytest.param(
        Raw(b"\x00\x02" + KEY[2:], VALUE), ColumnarCounts(unknown_type=1), "UNKNOWN_RECORD_TYPE", id="unknown-type"
    ),
    pytest.param(
        Raw(b"\xff\xff", None), ColumnarCounts(unknown_type=1), "UNKNOWN_RECORD_TYPE", id="unknown-type-of-a-tombstone"
    ),
    pytest.param(Raw(KEY, None), ColumnarCounts(tombstones=1), "UPDATE_TOMBSTONE", id="tombstone-of-an-update"),
    pytest.param(Raw(None, VALUE), ColumnarCounts(quarantined=1), "NULL_NOT_ALLOWED", id="null-key"),
    pytest.param(Raw(b"\x00", VALUE), ColumnarCounts(quarantined=1), "BUFFER_UNDERFLOW", id="key-of-one-byte"),
    pytest.param(Raw(KEY[:-1], VALUE), ColumnarCounts(quarantined=1), "BUFFER_UNDERFLOW", id="short-key"),
    pytest.param(
        Raw(b"\x00\x01\x7f\xff" + KEY[4:], VALUE),
        ColumnarCounts(quarantined=1),
        "LENGTH_OUT_OF_BOUNDS",
        id="long-group",
    ),
    pytest.param(
        Raw(b"\x00\x01\xff\xff" + KEY[4:], VALUE), ColumnarCounts(quarantined=1), "NULL_NOT_ALLOWED", id="null-group"
    ),
    pytest.param(Raw(KEY, b""), ColumnarCounts(quarantined=1), "BUFFER_UNDERFLOW", id="empty-value"),
    pytest.param(Raw(KEY, VALUE[:-1]), ColumnarCounts(quarantined=1), "BUFFER_UNDERFLOW", id="short-value"),
    pytest.param(
        Raw(KEY, b"\x00\x01" + VALUE[2:]), ColumnarCounts(quarantined=1), "UNKNOWN_VALUE_VERSION", id="unknown-version"
    ),
    pytest.param(
        Raw(KEY, VALUE[:18] + b"\xff\xff\xff\x0f"),
        ColumnarCounts(quarantined=1),
        "LENGTH_OUT_OF_BOUNDS",
        id="millions-of-batches",
    ),
    pytest.param(
        Raw(KEY, VALUE[:18] + b"\x00\x00"), ColumnarCounts(quarantined=1), "NULL_NOT_ALLOWED", id="null-batches"
    ),
]


@pytest.mark.parametrize(("raw", "counts", "code"), LEDGER)
def test_every_record_is_in_the_ledger(raw: Raw, counts: ColumnarCounts, code: str | None) -> None:
    """Decoded, tombstone, control, unknown, or quarantined with place and bytes; those around it are replayed."""
    before, after = update(10, 11).encoded(), update(20, 21).encoded()
    output = ColumnarShareReplay().feed(chunk_of([(5, 1, before), (6, 2, raw), (7, 3, after)]))
    assert output.counts == ColumnarCounts(
        **{name: getattr(counts, name) for name in ColumnarCounts.__slots__} | {"decoded": counts.decoded + 2}
    )
    assert [finding.code for finding in output.findings] == ([] if code is None else [code])
    for finding in output.findings:
        assert finding.offset == 6
        if finding.stage == "VALUE":
            assert finding.base_offset == 6
            assert finding.payload in (raw.key or b"", raw.value)
    assert output.transitions.first_offset.tolist() == [10, *([0] if counts.decoded else []), 20]


def test_group_ids_which_are_not_utf8_are_repaired_as_java_does() -> None:
    """Two byte strings which Java decodes to one text are one share partition."""
    start, end = KEY.index(b"g"), KEY.index(b"g") + 1
    raw = [Raw(KEY[:start] + wrong + KEY[end:], VALUE) for wrong in (b"\xff", b"\xfe")]
    output = ColumnarShareReplay().feed(chunk_of([(i, 0, record) for i, record in enumerate(raw)]))
    assert list(output.keys.group_ids) == ["\ufffd"]
    assert output.partition_states.to_log_offset.tolist() == [1]


def test_ids_reach_messages_escaped() -> None:
    """A group may be called anything, also what would end a line of a log file."""
    key = SharePartitionKey("a\nb\x1b", KEYS[0].topic_id, 3)
    snapshot = Event(key, ShareSnapshot(0, 0, 1, 9, 0, 1, 1, (StateBatch(9, 9, 0, 1),)))
    stale = Event(key, ShareUpdate(0, 1, 4, 0, ()))
    output = ColumnarShareReplay().feed(chunk_of([(0, 0, snapshot.encoded()), (1, 0, stale.encoded())]))
    (finding,) = output.findings
    assert (finding.stage, finding.code, finding.offset) == ("REPLAY", "STALE_WRITER", 1)
    assert finding.message.startswith(r"group 'a\nb\x1b' topic id 'AAAAAAAAAAAAAAAAAAAAAQ' partition 3: ")


def mutated(raw: Raw, rng: random.Random) -> Raw:
    parts = [bytearray(raw.key or b""), bytearray(raw.value or b"")]
    for _ in range(rng.randrange(1, 4)):
        part = rng.choice(parts)
        if part and rng.random() < 0.7:
            part[rng.randrange(len(part))] = rng.choice([0, 1, 2, 127, 128, 255, rng.randrange(256)])
        elif rng.random() < 0.5:
            del part[rng.randrange(len(part) + 1) :]
        else:
            part += rng.randbytes(rng.randrange(1, 30))
    return Raw(bytes(parts[0]), bytes(parts[1]))


def verdict(raw: Raw) -> str:
    try:
        key = codec.decode_key(TOPIC, raw.key or b"")
        codec.decode_value(TOPIC, key.record_type, raw.value or b"")
    except UnknownRecordType:
        return "unknown_type"
    except DecodeError:
        return "quarantined"
    return "decoded"


@pytest.mark.parametrize("seed", range(8))
def test_whatever_the_bytes_the_columnar_replay_and_the_codec_agree(seed: int) -> None:
    """Every record of a mangled log is counted as the codec would, and the state stays canonical."""
    rng = random.Random(seed)
    raw = [mutated(event.encoded(), rng) if rng.random() < 0.7 else event.encoded() for event in walk(seed, 300)]
    raw = [record for record in raw if record.value is not None]
    output = (columnar := ColumnarShareReplay()).feed(chunk_of([(i, i, record) for i, record in enumerate(raw)]))
    verdicts = [verdict(record) for record in raw]
    for name in ("decoded", "unknown_type", "quarantined"):
        assert getattr(output.counts, name) == verdicts.count(name), name
    batches = columnar.finish().state_batches
    for i in range(1, len(batches)):
        if batches.key[i] == batches.key[i - 1]:
            gap = int(batches.first_offset[i]) - int(batches.last_offset[i - 1])
            ranks = [(batches.delivery_count[j], batches.delivery_state[j]) for j in (i - 1, i)]
            assert gap > 1 or (gap == 1 and ranks[0] != ranks[1])


def test_all_offsets_together_are_counted_as_the_largest_number() -> None:
    """One batch may cover every offset there is, one more than the column holds."""
    event = Event(KEYS[0], ShareSnapshot(0, 0, 1, 0, 0, 1, 1, (StateBatch(0, OFFSET_MAX, 2, 1),)))
    columnar = ColumnarShareReplay()
    columnar.feed(chunk_of([(0, 0, event.encoded()), (1, 0, event.encoded())]))
    rows = columnar.finish().partition_states
    assert rows.acknowledged_count.tolist() == [OFFSET_MAX]
    assert rows.effective_start_offset.tolist() == [OFFSET_MAX]


def test_a_columnar_replay_may_take_over_the_buffers_of_a_finished_one() -> None:
    """What the other left in them shows nowhere; a columnar replay which is not finished keeps them."""
    chunk = chunk_of([(i, i, event.encoded()) for i, event in enumerate(walk(1, 200))])
    other = ColumnarShareReplay()
    with pytest.raises(ColumnarReplayError):
        ColumnarShareReplay(after=other)
    other.feed(chunk_of([(i, i, event.encoded()) for i, event in enumerate(walk(2, 300))]))
    other.finish()
    fresh, reused = ColumnarShareReplay(), ColumnarShareReplay(after=other)
    for from_fresh, from_reused in ((fresh.feed(chunk), reused.feed(chunk)), (fresh.finish(), reused.finish())):
        assert repr(from_reused) == repr(from_fresh)
        assert from_reused.transitions.log_offset.tolist() == from_fresh.transitions.log_offset.tolist()
        assert from_reused.state_batches.first_offset.tolist() == from_fresh.state_batches.first_offset.tolist()
        assert from_reused.partition_states.start_offset.tolist() == from_fresh.partition_states.start_offset.tolist()


def test_a_finished_columnar_replay_takes_no_more() -> None:
    """Its open rows are out: what came after would not close them."""
    columnar = ColumnarShareReplay()
    columnar.finish()
    with pytest.raises(ColumnarReplayError):
        columnar.finish()
    with pytest.raises(ColumnarReplayError):
        columnar.feed(chunk_of([]))


def test_a_codec_which_contradicts_itself_is_a_fault_of_the_share_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the codec encodes, the loop must read; the others are replayed, and the fault has its place."""
    other = codec.decode_key(TOPIC, KEY).fields
    raw_key = codec.encode_key(TOPIC, 1, codec.make_from(SHARE_UPDATE_KEY, other, partition=other.partition + 1))
    columnar = ColumnarShareReplay()
    monkeypatch.setattr(columnar_module, "_canonical_value", lambda decoded: b"\x00")
    output = columnar.feed(chunk_of([(0, 0, Raw(KEY, TAGGED_BATCH)), (1, 0, Raw(raw_key, VALUE))]))
    assert output.counts.decoded == 1
    assert [key.partition for key in map(output.keys.__getitem__, range(len(output.keys)))][-1] == other.partition + 1
    ((key, fault),) = columnar.faults.items()
    assert key == SharePartitionKey(other.group_id, other.topic_id, other.partition)
    assert isinstance(fault.__cause__, ColumnarReplayError) and fault.log_offset == 0
    with pytest.raises(ReplayFault):
        columnar.faults.raise_first()


@pytest.mark.parametrize(("code", "name"), [(0, "AVAILABLE"), (4, "ARCHIVED"), (5, "UNKNOWN_5"), (-1, "UNKNOWN_-1")])
def test_delivery_state_name(code: int, name: str) -> None:
    """Kafka's names; a byte of any other value is said to be unknown."""
    assert delivery_state_name(code) == name
