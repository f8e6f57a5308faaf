"""Pseudonyms of hosts: one for each host, none that tells it, and the key nowhere but in its file."""

import hmac
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.errors import SettingsError
from jobs.settings import load_settings
from jobs.silver.privacy import HostPseudonyms, host_pseudonyms, pseudonym
from jobs.spark.executors import Executor
from schemas.tables.bronze import RECORD_BATCHES
from schemas.tables.gold import GOLD_TABLES
from schemas.tables.silver import GROUP_EVENTS, GROUP_MEMBERS, SILVER_TABLES
from tests.jobs.silver.test_replay import Jobs
from tests.jobs.table_rows import rows
from tests.recorded import RECORDINGS

KEY = b"0123456789abcdef0123456789abcdef"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    """A key as a shell writes it, with a newline."""
    path = tmp_path / "key"
    path.write_bytes(KEY + b"\n")
    return path


def test_one_for_each_host(key_file: Path) -> None:
    """HMAC-SHA256 under the key; null and the empty text stay; other columns, and tables without hosts, too."""
    made = HostPseudonyms(str(key_file)).of(
        rows(GROUP_MEMBERS, *({"client_host": host, "client_id": "/10.0.0.1"} for host in ("/10.0.0.1", "", None)))
    )
    expected = "host-" + hmac.new(KEY, b"/10.0.0.1", "sha256").hexdigest()[:32]
    assert made["client_host"].to_pylist() == [expected, "", None]
    assert made["client_id"].to_pylist() == ["/10.0.0.1"] * 3
    assert pseudonym("/10.0.0.1", KEY) != pseudonym("/10.0.0.2", KEY) != pseudonym("/10.0.0.2", b"other")
    events = rows(GROUP_EVENTS, {"group_id": "g"})
    assert HostPseudonyms(str(key_file)).of(events) is events


def test_the_key_travels_nowhere(key_file: Path) -> None:
    """Tasks get its path."""
    pseudonyms = HostPseudonyms(str(key_file))
    pseudonyms.check()
    assert KEY not in pickle.dumps(pseudonyms)
    assert KEY.decode() not in repr(pseudonyms)


def test_a_key_that_is_none_is_refused(tmp_path: Path) -> None:
    """Before anything is replayed; what it says names the file and not what is in it."""
    short = tmp_path / "short"
    short.write_bytes(b"secret")
    for path, said in ((short, "16 bytes or more"), (tmp_path / "no", "No such file")):
        settings = replace(load_settings(environment={}), privacy_hosts="pseudonym", privacy_key_file=str(path))
        with pytest.raises(SettingsError, match=said) as caught:
            host_pseudonyms(settings)
        assert "secret" not in str(caught.value)
    with pytest.raises(SettingsError, match=r"privacy\.key_file"):
        load_settings(environment={"GROUPLEDGER_PRIVACY_HOSTS": "pseudonym"})
    with pytest.raises(SettingsError, match=r"privacy\.hosts"):
        load_settings(environment={"GROUPLEDGER_PRIVACY_HOSTS": "hide"})
    assert host_pseudonyms(load_settings(environment={})) is None


@pytest.mark.nights
def test_no_host_is_in_silver_and_gold(no_spark: Executor, tmp_path: Path, key_file: Path) -> None:
    """Over a recording, two runs of it: only bronze has the address; the rows are the same but for it."""
    tables = [*SILVER_TABLES, *GOLD_TABLES]
    logs = RECORDINGS / "codec-gzip" / "logs"
    plain = Jobs(no_spark, tmp_path / "plain", logs)
    plain.nightly()
    jobs = Jobs(no_spark, tmp_path / "warehouse", logs)
    jobs.settings = replace(jobs.settings, privacy_hosts="pseudonym", privacy_key_file=str(key_file))
    jobs.nightly()
    jobs.replay("again", rebuild=True)
    made = pseudonym("/127.0.0.1", KEY)
    for table in tables:
        shown = jobs.rows(table.full_name)
        assert not any("127.0.0.1" in row for row in shown), table.full_name
        assert shown == sorted(row.replace("/127.0.0.1", made) for row in plain.rows(table.full_name))
    assert any(made in row for row in jobs.rows(GROUP_MEMBERS.full_name))
    assert jobs.warehouse.read(RECORD_BATCHES, ["batch"]).num_rows
