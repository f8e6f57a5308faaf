"""The index page over the reports of many clusters: which cluster needs attention, and where its report is.

One small file without a script; its content security policy forbids execution and network access.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from jobs.console.output import time_text
from jobs.delta.cluster_tables import ClusterTables
from jobs.queries.answers.group_verdicts import GONE, OK, STALLED, group_verdicts, newest_record_ms
from jobs.report.page import asset, environment, short, text_hash

CLUSTERS: Final = "clusters"
"""Replaces the cluster's name in the name of the index page."""
OUTCOMES: Final = {0: "whole", 3: "something is missing or could not be read", 1: "the last night failed"}


@dataclass(frozen=True, slots=True)
class ClusterLine:
    cluster_id: str
    outcome: str
    is_whole: bool
    until: str
    group_count: int
    attention_count: int
    stalled_count: int
    rebalance_count: int
    given_up_count: int
    worst: str
    """The group that needs attention most, and why."""
    report: str
    """File name relative to the page; empty: there is no report."""


def cluster_line(tables: ClusterTables, exit_code: int, report: str) -> ClusterLine:
    """A cluster's line, from the tables after its last whole night."""
    events = group_verdicts(tables, with_gone=True)
    verdicts = [it for it in events if it.state != GONE]
    needs = [it for it in verdicts if it.verdict != OK]
    newest_ms = newest_record_ms(tables)
    return ClusterLine(
        tables.cluster_id,
        OUTCOMES[exit_code],
        exit_code == 0,
        (time_text(newest_ms) or "") if newest_ms else "",
        len(verdicts),
        len(needs),
        sum(it.verdict == STALLED for it in needs),
        sum(it.rebalance_count for it in events),
        sum(it.given_up_count for it in events),
        f"{short(needs[0].group_id)}: {needs[0].why}" if needs else "",
        report,
    )


def index_page(lines: Sequence[ClusterLine], made_at: str) -> str:
    """The page's text: clusters that need attention first."""
    style = asset("report.css")
    ordered = sorted(lines, key=lambda it: (it.is_whole, -it.stalled_count, -it.attention_count, it.cluster_id))
    template = environment().get_template("clusters.html.j2")
    policy = f"default-src 'none'; style-src {text_hash(style)}; base-uri 'none'; form-action 'none'"
    return template.render(lines=ordered, made_at=made_at, style=Markup(style), policy=policy)
