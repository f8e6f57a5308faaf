"""Questions about what the log does not have: one sentence for each kind of name, whatever job is asked."""

from typing import Final

import pytest

from jobs import cli_enums
from jobs.cli import app as cli
from tests.jobs.conftest import Recorded
from tests.jobs.silver.test_replay import CLUSTER

QUESTIONS: Final = {
    "describe --group": "group",
    "history --group": "group",
    "restore --at 2026-11-21T02:58:15Z --group": "group",
    "whatif --set session.timeout.ms=10000 --group": "group",
    "report --output /nowhere/r.html --group": "group",
    "groups --match": "group",
    "owner --partition 0 --topic": "topic",
    "where --partitions __share_group_state=5 --share": "topic",
    f"audit --list {cli_enums.Listing.ARCHIVED} --group": "group",
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_unknown_name_gets_one_sentence_with_the_nearest_one(
    question: str, recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and nothing on stdout that would look like an answer; by letter case too."""
    place = ["--warehouse", recorded("full-a").root, "--cluster-id", CLUSTER]
    kind = QUESTIONS[question]
    for asked, nearest in (("c01-rnge", "c01-range"), ("C01-RANGE", "c01-range"), ("#" * 30_000, None)):
        if asked.startswith("C01") and question == "groups --match":
            continue  # it ignores case
        name = f"s05-limit:{asked}:0" if "--share" in question else asked
        assert cli.main([*question.split(), name, *place]) == 2
        out, err = capsys.readouterr()
        meant = f" (did you mean {nearest!r}?)" if nearest else ""
        assert f"error: there is no {kind} {asked[:100]!r}{meant} in what was captured of cluster '{CLUSTER}': " in err
        assert out == "" and len(err.splitlines()) <= 2
