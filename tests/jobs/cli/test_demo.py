"""demo: what is printed, and what is there afterwards."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import session
from jobs.cli.demo import ASKED, SCENARIO
from jobs.console.progress import Steps
from jobs.delta.warehouse import Warehouse
from jobs.settings import Settings
from jobs.spark.executors import Executor
from tests.conftest import PROJECT_ROOT
from tests.jobs.in_process import in_process

pytestmark = pytest.mark.nights


def open_session(_: str, settings: Settings, **__: Any) -> tuple[Executor, Warehouse, Steps]:
    """Without Spark."""
    return in_process(), Warehouse(settings.warehouse), Steps(None, Console(file=io.StringIO()))


def test_a_demo_prints_its_story_and_answers_three_questions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a new folder each time: the story, each command as it is to be typed, its answer, and the report's path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "open_session", open_session)
    Path("demo").mkdir()
    assert cli.main(["demo"]) == exit_codes.DONE
    shown = capsys.readouterr().out
    story = [line for line in (PROJECT_ROOT / SCENARIO).read_text().splitlines() if line.startswith("# ")]
    assert shown.splitlines()[: len(story)] == [line.removeprefix("# ") for line in story] and len(story) == 6
    for question, words in ASKED:
        assert f"\n{question}\n./spark-submit.sh {words.format(folder='demo-2')}\n" in shown
    assert "by MEMBER_EXPIRED, gone: checkout-1 on /10.0.0.3" in shown
    assert "\n# COMPLETE: every record of __share_group_state" in shown
    assert shown.count(" DELIVERY_LIMIT ") == 8
    assert re.search(r" REWOUND_BY_RESET +CERTAIN +mails +0 +7198 +7000 +0 +198 ", shown)
    assert shown.endswith("\nreport: demo-2/report.html\n") and Path("demo-2/report.html").stat().st_size > 500_000
    assert cli.main(["demo", "--format", "json"]) == exit_codes.DONE
    facts = json.loads(capsys.readouterr().out)
    assert (facts["folder"], len(facts["asked"])) == ("demo-3", len(ASKED)) and Path("demo-3/report.html").is_file()
    assert not any(Path("demo").iterdir())
