"""Changes since the last report: each report contains a snapshot for the next one.

A report that is made again from the same records is compared with the same report as before, so repetition changes
nothing in it.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from jobs.delta.filesystems import filesystem_of
from jobs.queries.answers.group_verdicts import OK, SEVERITIES, GroupVerdict
from jobs.report.page import packed, unpacked

SNAPSHOT_TEXT: Final = re.compile(rb'<script type="application/json" id="snapshot">("[A-Za-z0-9+/=]*")</script>')
REPORT_BYTES_MAX: Final = 64_000_000
"""A larger file is not one of our reports."""
GROUPS_MAX: Final = 50_000
"""Maximum number of groups in a snapshot; with more groups, only those that need attention are compared."""


class Known(NamedTuple):
    """A group in an earlier report."""

    verdict: str
    since_ms: int | None
    rules: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    cluster_id: str
    made_at: str
    newest_ms: int
    """The end of the log when it was made (epoch ms)."""
    groups: Mapping[str, Known]
    has_all: bool = True
    """False: there were too many groups, and it has only those that need attention."""

    def json(self) -> dict[str, Any]:
        """The form in the page."""
        return {
            "cluster_id": self.cluster_id,
            "made_at": self.made_at,
            "newest_ms": self.newest_ms,
            "has_all": self.has_all,
            "groups": {name: [it.verdict, it.since_ms, dict(it.rules)] for name, it in self.groups.items()},
        }


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of groups, worst first."""

    before: Snapshot
    new: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    worse: tuple[str, ...] = ()
    better: tuple[str, ...] = ()
    since_ms: Mapping[str, int] = field(default_factory=dict)
    """Groups that needed attention in the last report already, and since when."""


def snapshot_of(cluster_id: str, made_at: str, newest_ms: int, verdicts: Sequence[GroupVerdict]) -> Snapshot:
    has_all = len(verdicts) <= GROUPS_MAX
    groups = {it.group_id: Known(it.verdict, it.since_ms, it.rules) for it in verdicts if has_all or it.verdict != OK}
    return Snapshot(cluster_id, made_at, newest_ms, groups, has_all)


def text_of(now: Snapshot, before: Snapshot | None) -> Any:
    """The content of the page's element: this snapshot, and the one compared with."""
    return packed({"now": now.json(), "before": None if before is None else before.json()})


def earlier(place: str, now: Snapshot) -> Snapshot | None:
    """The snapshot to compare with, from the report at a path or URI; None where there is none of this cluster."""
    value = _carried(place)
    try:
        last, before = _read(value["now"]), value["before"] and _read(value["before"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if last.cluster_id != now.cluster_id:
        return None
    if last.newest_ms < now.newest_ms:
        return last
    return before if before and before.cluster_id == now.cluster_id and before.newest_ms < now.newest_ms else None


def cluster_of(place: str) -> str | None:
    """The cluster of the report at a path or URI; None where there is no report."""
    value = _carried(place)
    try:
        return str(value["now"]["cluster_id"])
    except (KeyError, TypeError):
        return None


def changes(before: Snapshot, now: Snapshot) -> Changes:
    """Groups that are new, gone, worse or better."""
    both = [name for name in now.groups if name in before.groups]
    whole = before.has_all and now.has_all
    unknown = Known(OK, None, {})
    appeared = [name for name in now.groups if name not in before.groups]
    left = [name for name in before.groups if name not in now.groups]
    worse = [name for name in both if _is_worse(before.groups[name], now.groups[name])]
    better = [name for name in both if _is_worse(now.groups[name], before.groups[name])]
    if not whole:
        worse += [name for name in appeared if _is_worse(unknown, now.groups[name])]
        better += [name for name in left if _is_worse(unknown, before.groups[name])]
        appeared, left = [], []

    def severe_first(names: Sequence[str], of: Snapshot) -> tuple[str, ...]:
        return tuple(sorted(names, key=lambda it: (SEVERITIES.index(of.groups.get(it, unknown).verdict), it)))

    return Changes(
        before,
        severe_first(appeared, now),
        severe_first(left, before),
        severe_first(worse, now),
        severe_first([name for name in better if name not in worse], before),
        {
            name: min(since_ms, now.groups[name].since_ms or since_ms)
            for name in both
            if now.groups[name].verdict != OK
            and before.groups[name].verdict != OK
            and (since_ms := before.groups[name].since_ms) is not None
        },
    )


def _is_worse(before: Known, now: Known) -> bool:
    """A more severe verdict, or an equally severe one with a new rule."""
    severity, was = SEVERITIES.index(now.verdict), SEVERITIES.index(before.verdict)
    return severity < was or (severity == was and bool(set(now.rules) - set(before.rules)))


def _read(value: Mapping[str, Any]) -> Snapshot:
    groups = {
        str(name): Known(verdict, since_ms if since_ms is None else int(since_ms), dict(rules))
        for name, (verdict, since_ms, rules) in value["groups"].items()
        if verdict in SEVERITIES
    }
    return Snapshot(
        str(value["cluster_id"]), str(value["made_at"]), int(value["newest_ms"]), groups, bool(value["has_all"])
    )


def _carried(place: str) -> Any:
    """The snapshot element of the report at a path or URI, decoded from JSON; None where there is no report."""
    try:
        found = SNAPSHOT_TEXT.search(_bytes_at(place))
        return None if found is None else unpacked(found[1].decode("ascii"))
    except (OSError, pa.ArrowException, ValueError, zlib.error):
        return None


def _bytes_at(place: str) -> bytes:
    if "://" not in place:
        local = Path(place).expanduser()
        if not local.is_file():  # a pipe would never end
            return b""
        with local.open("rb") as file:
            data = file.read(REPORT_BYTES_MAX + 1)
    else:
        filesystem, path = filesystem_of(place)
        with filesystem.open_input_stream(path) as stream:
            data = stream.read(REPORT_BYTES_MAX + 1)
    return data if len(data) <= REPORT_BYTES_MAX else b""
