"""The examples that run a night by a schedule: each starts jobs that there are, and takes exit code 3 for done."""

import ast
import re
import shlex
from configparser import ConfigParser
from typing import Final

import pytest
import yaml  # type: ignore[import-untyped]

from jobs import exit_codes
from jobs.cli import app as cli
from jobs.cli import outcome
from tests.conftest import PROJECT_ROOT

pytestmark = pytest.mark.first

EXAMPLES: Final = PROJECT_ROOT / "examples"
SCHEDULING: Final = EXAMPLES / "scheduling"
RULES: Final = EXAMPLES / "prometheus" / "groupledger.rules.yml"
ENTRY: Final = "spark-submit.sh "
LABEL: Final = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
CRON_FIELD: Final = re.compile(r"\*|\d+")


def parses(words: list[str], monkeypatch: pytest.MonkeyPatch) -> bool:
    with monkeypatch.context() as patch:
        patch.setenv(outcome.PARSE_ONLY, "1")
        return cli.main(words) == outcome.PARSED


def unit(name: str) -> ConfigParser:
    """A unit of systemd; a key is in it once."""
    read = ConfigParser(interpolation=None)
    read.optionxform = str  # type: ignore[assignment,method-assign]
    read.read_string((SCHEDULING / name).read_text(encoding="utf-8"))
    return read


def test_the_lines_of_cron_are_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five fields, the user, and a command of ours with its output kept; no character that cron reads as a line end.
    A night that is not complete says so by mail, with what lists the holes."""
    lines = [line for line in (SCHEDULING / "groupledger.cron").read_text().splitlines() if re.match(r"[\d*]", line)]
    jobs = []
    for line in lines:
        *fields, user, command = line.split(None, 6)
        assert len(fields) == 5 and all(CRON_FIELD.fullmatch(field) for field in fields) and user == "groupledger"
        ours, _, kept = command.partition(ENTRY)[2].partition(" >> ")
        log, _, then = kept.partition(" 2>&1")
        assert parses(shlex.split(ours), monkeypatch) and log == "/var/log/groupledger.log" and "%" not in line
        jobs.append(ours.split()[0])
        if jobs == ["nightly"]:
            assert then.startswith(f'; [ $? -ne {exit_codes.INCOMPLETE} ] || echo "')
            assert parses(shlex.split(then.partition(ENTRY)[2].removesuffix('"')), monkeypatch)
    assert jobs == ["nightly", "maintain"]


def test_the_units_of_systemd_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is of the service's name; 3 is a success, and what cannot get better is not tried again."""
    service, timer = unit("groupledger.service"), unit("groupledger.timer")
    path, _, words = service["Service"]["ExecStart"].partition(" ")
    assert path.endswith("/spark-submit.sh") and parses(shlex.split(words), monkeypatch)
    assert service["Service"]["Type"] == "oneshot"
    assert service["Service"]["SuccessExitStatus"] == str(exit_codes.INCOMPLETE)
    assert service["Service"]["RestartPreventExitStatus"] == str(exit_codes.WRONG_ARGUMENTS)
    assert timer["Timer"]["Persistent"] == "true" and timer["Install"]["WantedBy"] == "timers.target"


def test_the_cron_job_is_kubernetes_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One night at a time in the image's user; 3 is a success, and wrong arguments are not tried again."""
    job = yaml.safe_load((SCHEDULING / "cronjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert job["spec"]["concurrencyPolicy"] == "Forbid" and len(job["spec"]["schedule"].split()) == 5
    spec = job["spec"]["jobTemplate"]["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert parses(container["args"], monkeypatch)
    assert f"[ $? -eq {exit_codes.INCOMPLETE} ]" in container["command"][-2]
    [rule] = spec["podFailurePolicy"]["rules"]
    assert rule["onExitCodes"]["containerName"] == container["name"]
    assert rule["onExitCodes"]["values"] == [exit_codes.WRONG_ARGUMENTS]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "pods of a podFailurePolicy need that"
    volumes = {it["name"] for it in spec["template"]["spec"]["volumes"]}
    assert {it["name"] for it in container["volumeMounts"]} == volumes
    assert (
        f"USER {spec['template']['spec']['securityContext']['runAsUser']}" in (PROJECT_ROOT / "Dockerfile").read_text()
    )


def test_the_dag_is_python_and_runs_jobs_that_there_are() -> None:
    """Airflow itself is not needed to see that; its words for the jobs are those of the command line."""
    tree = ast.parse((SCHEDULING / "airflow.py").read_text())
    jobs = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "job"
        and isinstance(node.args[0], ast.Constant)
    }
    assert jobs == {"capture", "replay", "audit", "maintain"}
    assert jobs <= cli.COMMANDS.keys()


def test_every_alert_says_what_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a severity and whose it is; each command in it is one."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    names = {rule["alert"] for rule in group["rules"]}
    assert (
        len(names) == len(group["rules"])
        and {
            *("GroupledgerNightMissing", "GroupledgerIncomplete", "KafkaOffsetsReset"),
            *("KafkaShareGroupGaveUp", "KafkaGroupStalled", "KafkaGroupNeedsSomebody"),
        }
        <= names
    )
    commands = 0
    for rule in group["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert "{{ $labels.cluster_id }}" in rule["annotations"]["summary"]
        text = LABEL.sub(lambda label: "resets" if label[1] == "finding" else "x", rule["annotations"]["description"])
        for words in re.findall(r"\./spark-submit\.sh ([^,.]*)", text):
            assert parses(shlex.split(words), monkeypatch), words
            commands += 1
    assert commands >= len(names) - 2


def test_files_of_schedules_are_all_named() -> None:
    """On the page, by their folder; nothing else is in it."""
    page = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    assert "`examples/scheduling`" in page
    assert {path.name for path in SCHEDULING.iterdir() if path.is_file()} == {
        "airflow.py", "cronjob.yaml", "groupledger.cron", "groupledger.service", "groupledger.timer"
    }  # fmt: skip
