"""The assignor of a streams group (KIP-1357, Kafka 4.4): no record names it, the group's config does."""

import json
from io import StringIO

from jobs.cli_enums import View
from jobs.delta.times import epoch_ms
from jobs.queries.answers.describe import write_descriptions
from tests.answers import describe
from tests.cases.harness import CASES, CLUSTER_ID, Ledger

NAMED, OTHER = "t11-streams-static", "t12-streams-dynamic"


def state_columns(ledger: Ledger, group_id: str, at_ms: int | None = None) -> dict[str, object]:
    """The row of `describe --state`, as JSON has it."""
    out = StringIO()
    found = describe(ledger.warehouse, CLUSTER_ID, view=View.STATE, group_ids=[group_id], at_ms=at_ms)
    write_descriptions(found, "json", False, out)
    row: dict[str, object] = json.loads(out.getvalue().splitlines()[0])
    return row


def test_describe_shows_the_assignor_that_is_configured(ledger: Ledger) -> None:
    """In a column of its own, as the tool of Kafka 4.4 does: the config's, else the brokers' default."""
    ledger.night(CASES / "kafka-4.4" / "logs")
    (row,) = (it for it in ledger.rows("silver.configs") if it["name"] == "streams.assignor.name")
    assert (row["resource_type"], row["resource_name"], row["value"]) == ("GROUP", NAMED, "sticky")
    begun = [it for it in ledger.rows("silver.group_generations") if it["group_id"] == OTHER]
    streams = max(it["valid_from"] for it in begun if it["group_type"] == "STREAMS")
    for group_id, at_ms in ((NAMED, None), (OTHER, epoch_ms(streams))):
        assert state_columns(ledger, group_id, at_ms)["ASSIGNOR"] == "sticky"
