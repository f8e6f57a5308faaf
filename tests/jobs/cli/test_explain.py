"""Every word that is printed is explained."""

import json
import re
import tomllib
from collections import Counter

import pytest

from coordinator_core.history.comparison_with_broker import Verdict as Compared
from coordinator_core.inference.groups.causes import ORDER
from coordinator_core.replay.classic.state import ClassicGroupState
from coordinator_core.replay.consumer.state import ConsumerGroupState
from coordinator_core.replay.share.state import ShareGroupState
from coordinator_core.replay.streams.state import StreamsGroupState
from jobs import exit_codes
from jobs.laboratory.whatif import MEASURES
from jobs.queries.answers.dead_letters import CopyState
from jobs.queries.answers.explain import CAPITALS, explained, meanings
from jobs.queries.answers.findings import Findings, Found, lines
from jobs.queries.answers.group_verdicts import RULES, SEVERITIES
from jobs.queries.answers.lists import FINDINGS, LISTS
from jobs.queries.answers.payload import Presence
from jobs.queries.answers.restore import Change
from schemas.error_codes import ErrorCode
from schemas.tables import TABLES
from simulator.simulation.clients.member import MemberState as ClientState
from simulator.whatif.answer import ALL_ASSUMPTIONS
from simulator.whatif.shares import RecordVerdict
from simulator.whatif.verdicts import Verdict
from tests.conftest import PROJECT_ROOT
from tests.jobs.cli.asking import Asks

pytestmark = pytest.mark.first


def test_every_word_that_may_be_printed_is_about_itself() -> None:
    """Also those that the recording lacks."""
    words = {*ORDER, *(it.name for it in Compared), *CopyState, *Presence, *Verdict, *RecordVerdict, *SEVERITIES}
    words |= {*ClassicGroupState, *ConsumerGroupState, *StreamsGroupState, *ShareGroupState}
    words |= {*ClientState, *(it.name for it in ErrorCode)}
    for word in sorted(words | {"CERTAIN", "LIKELY", "GUESS"}):
        assert explained(word), word
    for name, text in ALL_ASSUMPTIONS.items():
        assert text in {it.text for it in explained(name)}


def test_every_list_of_audit_is_explained() -> None:
    """By what a night says of its rows, or the comment of their table."""
    for listing, it in LISTS.items():
        [text] = [found.text for found in explained(listing) if found.kind == "list of audit"]
        assert it.table.full_name in text and (it.table.comment if it.finding is None else it.finding.many) in text


def test_words_of_sentences_are_explained() -> None:
    """Of a night's end: how it names each finding, each reason of a verdict, and what is new, open or over."""
    items = tuple(Found(it, {"g": 2}, 1, {"g": 1}, {"g": 1}) for it in FINDINGS)
    said = " ".join(lines(Findings(items=items, missing_log_partitions={}), attention=["g"]))
    for word in [*CAPITALS.findall(said), "perhaps", "needs attention", "thrown out", "in storms"]:
        assert explained(word), word
    for finding in FINDINGS.values():
        assert explained(finding.one) and explained(finding.many)
    for rule in RULES.values():
        assert explained(rule.one) and explained(rule.many)
    [storm, *_] = explained("storm")
    assert "at least inference.storm_generation_count" in storm.text


@pytest.mark.parametrize("scenario", sorted(it.name for it in (PROJECT_ROOT / "scenarios").glob("story-*.toml")))
def test_words_of_an_exchange_are_explained(ask: Asks, scenario: str) -> None:
    """Requests, errors and states, as `simulate --explain` tells them."""
    path = PROJECT_ROOT / "scenarios" / scenario
    group = tomllib.loads(path.read_text(encoding="utf-8"))["group"][0]["name"]
    shown = ask(f"simulate --scenario {path} --explain {group}").out
    words = {*re.findall(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b", shown), *CAPITALS.findall(shown)}
    assert len(words) > 5
    for word in words:
        assert explained(word), word


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("MOVED", "word of: Answers of commands", "whatif, of a rebalance: it would be at another time"),
        ("AVOIDED", "word of: Answers of commands", "whatif, of a rebalance: there would be none in its place"),
        ("forward", "word of: Answers of commands", "restore, the offset to restore: higher"),
        ("Dead", "state of: States", "of a group: it is gone"),
        ("STATE_TOMBSTONE", "method of: Others", "gold.share_offset_changes: a deleted state"),
    ],
)
def test_each_word_of_a_row_has_what_the_row_is_about(word: str, kind: str, text: str) -> None:
    """A part of a row is not understood without its beginning."""
    assert [it.text for it in explained(word) if it.kind == kind] == [text]


def test_words_of_answers_are_explained() -> None:
    """Also those in small letters, and a word of two commands by both."""
    for word in (
        *MEASURES,
        "partition-ms",
        "partition-ms likely unowned",
        "storm rebalance",
        "readings",
        *(it.split(":")[0] for it in Change),
    ):
        assert explained(word), word
    assert {it.text.partition(":")[0] for it in explained("CANNOT_TELL") if it.kind.startswith("word")} == {
        "verify",
        "whatif",
    }
    assert "method of: gold.commit_anomalies" in {it.kind for it in explained("TOMBSTONE")}
    for word in ("DELETED", "LAST-CHANGE"):
        assert not any("below" in it.text or it.text == "the last generation" for it in explained(word))


def test_values_in_small_letters_are_explained(ask: Asks) -> None:
    """Those of columns of the recording that hold words, and names of details: by the column that declares them."""
    silver = {
        "group_events": "unnest(map_keys(details))",
        "group_generations": "unnest([protocol_type, protocol_name])",
        "group_members": "server_assignor",
    }
    words = set()
    for table, values in silver.items():
        rows = ask(f"sql --format json -e 'select distinct {values} as word from silver.{table}'").out.splitlines()
        words |= {json.loads(row)["word"] for row in rows}
    assert {"online", "connect", "cooperative-sticky", "uniform"} < words
    for word in words - {None, ""}:
        assert explained(word), word
    assert any(
        it.kind == "column of silver.group_events" and "`online`: members stayed" in it.text
        for it in explained("online")
    )


def test_tables_and_columns_are_explained_by_their_comments() -> None:
    """By their names, alone or with the table's; in any case."""
    explained_by = Counter((word, it.text) for it in meanings() if it.is_own for word in it.words)
    for table in TABLES.values():
        if table.layer != "state":
            assert [text for word, text in explained_by if word == table.full_name and table.comment in text]
            for column in table.columns:
                assert explained_by[f"{table.full_name}.{column.name}", column.comment] == 1
                assert explained_by[column.name, column.comment] >= 1
    assert explained("GOLD.Rebalances") == explained("gold.rebalances")


def test_a_word_is_one_sentence_a_meaning(ask: Asks) -> None:
    """With its kind; for programs as rows; an unknown one gets the nearest, and no word all of them."""
    assert ask("explain GUESS").out == (
        "GUESS (confidence of: What is certain, and what is not): a rule of thumb, without evidence for or against it\n"
    )
    [row] = map(json.loads, ask("explain guess --format json").out.splitlines())
    assert row["meaning"] == "a rule of thumb, without evidence for or against it"
    assert ask("explain who").out.startswith("who (column of audit): clients and hosts of the members that went")
    unknown = ask("explain LIKLY")
    assert (unknown.code, unknown.out) == (exit_codes.WRONG_ARGUMENTS, "")
    assert (
        unknown.err == "error: there is no word 'LIKLY' (did you mean 'LIKELY'?): ./spark-submit.sh explain lists all\n"
    )
    assert re.search(r"^confidence of: .*: CERTAIN, LIKELY, GUESS$", ask("explain").out, re.MULTILINE)


def test_several_words_are_explained(ask: Asks) -> None:
    """Together where they are one; as columns are written, in the plural, and as a sentence has them."""
    lines = ask("explain MEMBER_EXPIRED CERTAIN").out.splitlines()
    assert [line.split()[0] for line in lines] == ["MEMBER_EXPIRED", "CERTAIN"]
    assert ask("explain thrown out").out == ask("explain 'thrown out'").out != ""
    shown = ask("explain MEMBER_EXPIRED NO_SUCH CERTAIN")
    assert (shown.code, shown.out.splitlines()) == (exit_codes.WRONG_ARGUMENTS, lines)
    assert shown.err.startswith("error: there is no word 'NO_SUCH'")
    for word in ("partitions moved", "session.timeout.ms", "tombstones", "quarantined"):
        assert ask(f"explain '{word}'").code == exit_codes.DONE, word
    assert ask("explain CERTAIN LIKLY").code == ask("explain ''").code == exit_codes.WRONG_ARGUMENTS
