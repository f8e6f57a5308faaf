"""Names and checkpoint files of a broker's log directory."""

import pytest

from coordinator_core.bytes.log.segment import (
    SegmentFile,
    parse_checkpoint,
    parse_kafka_cluster_id,
    parse_partition_folder,
    parse_topic_id,
    select_segments,
)
from coordinator_core.errors import InvalidCheckpoint

ZERO = "00000000000000000000"
TEN = "00000000000000000010"
NINE = "00000000000000000009"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param(
            [f"{TEN}.log", f"{ZERO}.log", f"{NINE}.log"],
            (
                SegmentFile(f"{ZERO}.log", 0, False),
                SegmentFile(f"{NINE}.log", 9, False),
                SegmentFile(f"{TEN}.log", 10, False),
            ),
            id="ascending",
        ),
        pytest.param(
            [
                f"{ZERO}.index",
                f"{ZERO}.timeindex",
                f"{ZERO}.txnindex",
                f"{ZERO}.snapshot",
                f"{ZERO}.log.deleted",
                f"{ZERO}.log.cleaned",
                f"{ZERO}.index.swap",
                "leader-epoch-checkpoint",
                "partition.metadata",
                "0.log",
                f"1{ZERO}.log",
                f"{ZERO}.log\n",
                "99999999999999999999.log",
                "\u0660" * 20 + ".log",
            ],
            (),
            id="none of these",
        ),
        pytest.param([f"{ZERO}.log.swap"], (SegmentFile(f"{ZERO}.log.swap", 0, True),), id="swap alone"),
        pytest.param(
            [f"{ZERO}.log.swap", f"{ZERO}.log"], (SegmentFile(f"{ZERO}.log", 0, False),), id="swap next to its log"
        ),
        pytest.param(
            [f"{ZERO}.log", f"{ZERO}.log.swap"], (SegmentFile(f"{ZERO}.log", 0, False),), id="log before its swap"
        ),
    ],
)
def test_select_segments(names: list[str], expected: tuple[SegmentFile, ...]) -> None:
    """Only segments, each base offset once, ascending."""
    assert select_segments(iter(names)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("__consumer_offsets-0", ("__consumer_offsets", 0)),
        ("__share_group_state-49", ("__share_group_state", 49)),
        ("a-b-c-17", ("a-b-c", 17)),
        ("a.b_c-99999", ("a.b_c", 99999)),
        ("topic-100000", None),
        ("topic", None),
        ("-0", None),
        ("topic-", None),
        ("topic-x", None),
        ("topic-01", None),
        ("..-0", None),
        ("topic-0.1f2e3d4c5b6a79880102030405060708-delete", None),
        ("topic-0.1f2e3d4c5b6a79880102030405060708-future", None),
        ("topic-0.1f2e3d4c5b6a79880102030405060708-stray", None),
        ("to/pic-0", None),
        ("tüpic-0", None),
        ("topic-\u0663", None),
        ("topic-0\n", None),
        ("t" * 250 + "-0", None),
    ],
)
def test_parse_partition_folder(name: str, expected: tuple[str, int] | None) -> None:
    """Topic and partition of a live partition's folder, None for all else."""
    assert parse_partition_folder(name) == expected


def test_parse_checkpoint() -> None:
    """Entries by topic and partition."""
    text = "0\n2\n__consumer_offsets 3 41\n__share_group_state 0 9223372036854775807\n"
    assert parse_checkpoint(text) == {("__consumer_offsets", 3): 41, ("__share_group_state", 0): 9223372036854775807}
    assert parse_checkpoint("0\n0\n") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "1\n0\n",
        "0\nx\n",
        "0\n1\n",
        "0\n0\na 0 0\n",
        "0\n1\na 0\n",
        "0\n1\na 0 0 0\n",
        "0\n1\na 0 -1\n",
        "0\n1\na zero 1\n",
        "0\n1\na 0 \u0663\n",
        "0\n2\na 0 1\na 0 1\n",
        "0\n1\na 0 " + "9" * 5000 + "\n",
    ],
)
def test_parse_checkpoint_refuses(text: str) -> None:
    """What CheckpointFile does not write raises, and the text of the error holds no content."""
    with pytest.raises(InvalidCheckpoint) as caught:
        parse_checkpoint(text)
    assert "zero" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 0\ntopic_id: tuRq2yAfSwCHe9V6kQcn5g", "tuRq2yAfSwCHe9V6kQcn5g"),
        ("topic_id: tuRq2yAfSwCHe9V6kQcn5g\r\nversion: 0\n", "tuRq2yAfSwCHe9V6kQcn5g"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", None),
        ("version: 0\ntopic_id: short", None),
        ("", None),
    ],
)
def test_topic_ids(text: str, expected: str | None) -> None:
    """partition.metadata has the id of its topic, but for one of before Kafka 2.8."""
    assert parse_topic_id(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#\n#Sat Nov 21\ncluster.id=a-B_c\nversion=1\nnode.id=1\n", "a-B_c"),
        ("version=1\r\ncluster.id = a\r\n", "a"),
        ("version=0\nbroker.id=1\n", None),
        ("#cluster.id=a", None),
    ],
)
def test_kafka_cluster_ids(text: str, expected: str | None) -> None:
    """meta.properties has the cluster's own id, if the broker is of a version that writes it."""
    assert parse_kafka_cluster_id(text) == expected
