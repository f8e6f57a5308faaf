"""Texts that clients may send as names, each of which some page, table, spreadsheet or shell has obeyed before; and a
ledger in which the eight fields that clients fill hold all of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from jobs.delta.warehouse import Warehouse
from schemas.tables.bronze import COVERAGE
from schemas.tables.gold import ARCHIVED_RECORDS, COMMIT_ANOMALIES, PARTITION_OWNERS, REBALANCES, REDELIVERIES
from schemas.tables.silver import (
    GROUP_GENERATIONS,
    GROUP_MEMBERS,
    MEMBER_ASSIGNMENTS,
    OFFSET_COMMITS,
    SHARE_BATCH_TRANSITIONS,
    SHARE_PARTITION_STATES,
    SHARE_STATE_BATCHES,
)
from tests.jobs.report.large import START_MS, Tables

SCRIPT: Final = "window.obeyed=(window.obeyed||0)+1"

_MARKUP: Final = (
    f"<script>{SCRIPT}</script>",
    f"</script><script>{SCRIPT}</script>",
    f"<img src=x onerror={SCRIPT}>",
    f"<svg onload={SCRIPT}>",
    f'" autofocus onfocus={SCRIPT} x="',
    f"' onmouseover={SCRIPT} x='",
    f'<a href="javascript:{SCRIPT}">a</a>',
    f"javascript:{SCRIPT}",
    f"<iframe srcdoc='<script>parent.{SCRIPT}</script>'></iframe>",
    f"<style>@import '//x'</style><b style=animation:x onanimationstart={SCRIPT}>",
    f"<math><mtext><script>{SCRIPT}</script>",
    "<b>bold</b><br><i>new line</i>",
    "<!-- <script>",
    "]]><x>",
    "&lt;script&gt;&amp;&quot;&#60;b&#62;",
    "<a href='http://127.0.0.1:9/'>x</a>",
    "<image href='http://127.0.0.1:9/x.png'/>",
    "<span style='color:red'>x</span>",
    "<sup>1</sup><sub>2</sub><em>x</em>",
    "%{x}%{customdata[0]}<extra></extra>",
)
_FORMULAE: Final = (
    '=HYPERLINK("http://127.0.0.1:9")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "+1",
    "-1e999",
    "\t=1+1",
    "\r=1+1",
    "\uff1d1+1",
)
_LINES: Final = (
    "\u2028\u2029\u202eabc\u200b",
    "\x00\x1b[31mred\x07\r\n\t",
    "a\nerror: b",
    '"} 1\ngroupledger_up 0',
    "[bold]x[/bold]:cat:",
)
_OTHERS: Final = (
    "{{ 7 * 7 }}{% for x in y %}",
    "${7*7}`${alert(1)}`",
    "__proto__",
    "constructor",
    "$& $1 \\1 \\u003cscript\\u003e",
    "'; DROP TABLE groups; --",
    "../../../../etc/passwd",
    "file:///x?y#z",
    "\ufeff\ufffe\ud7ff",
    "z\u0301\u0302\u0303" * 8,
    "x" * 32_767,
    "%3Cscript%3E%00",
    "${env:HOME}",
    "null",
    "\U0001f4a9 \u05d0\u05d1 \u0645",
    "%_*?:x",
    "`tick` it's \\",
    "..",
)
_SHAPES: Final = ("{}", " {} ", "\"'>{}", "a&{}")

HOSTILE: Final = tuple(
    shape.replace("{}", text) for shape in _SHAPES for text in (*_MARKUP, *_FORMULAE, *_LINES, *_OTHERS)
)
"""200 of them."""
assert len(set(HOSTILE)) == 200
TEXTS: Final = HOSTILE[: len(HOSTILE) // len(_SHAPES)]
"""Each text once, as it is: for what is asked for one at a time."""

FIELDS: Final = ("group_id", "client_id", "client_host", "member_id", "instance_id", "rack_id", "topic", "metadata")
"""What clients fill as they like."""


CAPTURED: Final = {
    "partition": 0,
    "from_offset": 0,
    "to_offset": 200,
    "kind": "CAPTURED",
    "first_timestamp": np.array([START_MS]),
    "last_timestamp": np.array([START_MS + 200_000]),
    "observed_at": np.array([START_MS + 200_000]),
}


def hostile(field: str, number: int) -> str:
    """Every field has all of the texts, each in an order of its own."""
    return HOSTILE[(number + 25 * FIELDS.index(field)) % len(HOSTILE)]


def plain(field: str, number: int) -> str:
    """As many names that mean nothing to anybody."""
    return f"{field}-{number:03}"


def write_named(root: Path, name_of: Callable[[str, int], str] = hostile) -> Warehouse:
    """The tables of 200 groups. The first one has 200 members, each with a partition of a topic of its own and a commit
    that went back; the second one is a share group that gives up a record of each of 200 topics."""
    count = len(HOSTILE)
    numbers = np.arange(count)
    names = {field: [name_of(field, number) for number in range(count)] for field in FIELDS}
    at_ms = START_MS + numbers * 1_000
    tables = Tables(root)
    busy = {"group_id": names["group_id"][0], "group_type": "CLASSIC", "incarnation": 0, "log_partition": 0}
    share = {"group_id": names["group_id"][1], "group_type": "SHARE", "log_partition": 0}
    who = {field: names[field] for field in ("member_id", "client_id", "client_host", "instance_id")}
    interval = {"from_log_offset": numbers, "valid_from": at_ms, "from_generation": numbers + 1}
    reported = {"method": "IN_LOG", "confidence": "CERTAIN"}

    types = np.array(["CLASSIC", "SHARE", *["CONSUMER"] * (count - 2)], object)
    groups = {"group_id": names["group_id"], "group_type": types, "incarnation": 0, "log_partition": 0}
    generation = {"generation": numbers + 1, "from_log_offset": numbers, "valid_from": at_ms, "state": "Stable"}
    tables.add(GROUP_GENERATIONS, count, {**groups, **generation, "protocol_type": "consumer"})
    came = pa.array([[name] for name in names["member_id"]], pa.list_(pa.string()))
    for first, owner in ((1, groups), (1_001, busy)):
        started = {"to_generation": numbers + first, "started_at": at_ms, "unowned_likely_ms": numbers}
        why = {**reported, "cause": "MEMBER_JOINED", "members_joined": came}
        tables.add(REBALANCES, count, {**owner, **started, **why})
    place = {"topic": names["topic"], "partition": 0}
    rack = {"rack_id": names["rack_id"]}
    owned = {"member_id": names["member_id"], "assignment": "CURRENT"}
    tables.add(GROUP_MEMBERS, count, {**busy, **who, **rack, **interval})
    tables.add(MEMBER_ASSIGNMENTS, count, {**busy, **place, **interval, **owned})
    tables.add(PARTITION_OWNERS, count, {**busy, **place, **who, **interval, "is_double": False})
    back = {"kind": "REWIND", "from_offset": 9, "to_offset": 5, "delta": -4, "at": at_ms, "log_offset": numbers}
    owned_by = {"owner_member_id": names["member_id"], "owner_client_host": names["client_host"]}
    tables.add(COMMIT_ANOMALIES, count, {**busy, **place, **back, **owned_by, **reported})
    commit = {
        "metadata": names["metadata"],
        "committed_offset": 5,
        "log_partition": 0,
        "log_offset": numbers,
        "outcome": "APPLIED",
        "applied_log_offset": numbers,
        "applied_at": at_ms,
        "change": "ADVANCE",
        "delta": 1,
    }
    tables.add(OFFSET_COMMITS, count, {**commit, **place, "group_id": names["group_id"]})

    topic_ids = [f"{number:022}" for number in range(count)]
    range_ = {**share, **place, "topic_id": topic_ids, "first_offset": 0, "last_offset": 4, "log_offset": numbers}
    tables.add(
        SHARE_STATE_BATCHES,
        count,
        {**range_, **interval, "delivery_state": "ARCHIVED", "delivery_count": 5, "is_complete": True},
    )
    start = {"record_kind": "UPDATE", "valid_from": at_ms, "start_offset": 0, "effective_start_offset": 5}
    tables.add(SHARE_PARTITION_STATES, count, {**range_, **start, "is_complete": True})
    tables.add(SHARE_BATCH_TRANSITIONS, count, {**range_, "at": at_ms, "to_delivery_count": 5, "kind": "ARCHIVED"})
    tables.add(REDELIVERIES, count, {**range_, **reported, "at": at_ms, "cause": "RETRIED", "to_delivery_count": 2})
    given_up = {"at": at_ms, "cause": "LIMIT_OR_REJECT", "delivery_count": 5}
    tables.add(ARCHIVED_RECORDS, count, {**range_, **reported, **given_up, "dead_letter": "REFUSED"})
    for topic in ("__consumer_offsets", "__share_group_state"):
        tables.add(COVERAGE, 1, {**CAPTURED, "topic": topic})
    return tables.warehouse
