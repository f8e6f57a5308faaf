"""The semantic model of gold for dbt: of columns that are there, by names that dbt takes; dbt itself parses it."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from jobs.queries.views.counted_events import COUNTED_EVENTS, NUMBERS
from schemas.tables import TABLES
from tests.conftest import PROJECT_ROOT
from tools.dbt_semantic import COUNTED, RESERVED, models, semantic_models

NAME = re.compile(r"[a-z][a-z0-9_]*[a-z0-9]")
"""As MetricFlow asks for, without two underscores in a row."""


@pytest.fixture(scope="module")
def parsed() -> dict[str, Any]:
    """The file, as YAML reads it."""
    found: dict[str, Any] = yaml.safe_load(semantic_models())
    return found


def test_every_table_of_gold_has_a_semantic_model_of_its_own_columns(parsed: dict[str, Any]) -> None:
    """Each dimension and measure is of columns that the table has; the cluster is an entity of all."""
    of_gold = {table.name: table for table in (*TABLES.values(), COUNTED) if table.layer == "gold"}
    assert [model["name"] for model in parsed["semantic_models"]] == list(of_gold)
    for model in parsed["semantic_models"]:
        columns = set(of_gold[model["name"]].column_names)
        assert model["model"] == f"ref('{model['name']}')" and f"{model['name']}.sql" in models()
        for part in (*model["dimensions"], *model["measures"]):
            words = set(re.findall(r"[a-z_]+", str(part.get("expr", part["name"]))))
            assert words <= columns, part
        names = [part["name"] for part in model["dimensions"]]
        assert model["defaults"]["agg_time_dimension"] in names and len(set(names)) == len(names)
        assert not RESERVED.keys() & set(names)
        assert model["entities"][0] == {"name": "kafka_cluster", "type": "foreign", "expr": "cluster_id"}


def test_every_measure_has_a_metric_and_no_name_comes_twice(parsed: dict[str, Any]) -> None:
    """Of all of them, since measures share one space of names."""
    measures = [measure["name"] for model in parsed["semantic_models"] for measure in model["measures"]]
    assert measures == [metric["name"] for metric in parsed["metrics"]] and len(set(measures)) == len(measures)
    assert all(NAME.fullmatch(name) and "__" not in name for name in measures)
    aggregates = {
        measure["name"]: measure["agg"] for model in parsed["semantic_models"] for measure in model["measures"]
    }
    assert aggregates["group_summary_rebalance_count"] == "sum"
    assert aggregates["group_summary_member_count_max"] == "max"
    assert aggregates["lag_history_lag"] == "max"
    assert {aggregates[f"counted_events_{number.name}"] for number in NUMBERS} == {"sum"}


def test_the_model_of_what_counts_is_the_view() -> None:
    """With dbt's names of the sources."""
    text = re.sub(r"\{\{ source\('(\w+)', '(\w+)'\) \}\}", r"\1.\2", models()["counted_events.sql"])
    assert text.strip() == COUNTED_EVENTS.query and "source('gold', 'rebalances')" in models()["counted_events.sql"]


@pytest.mark.skipif("DBT" not in os.environ, reason="needs dbt: DBT=PATH of its command, 1.10 with dbt-duckdb")
def test_dbt_parses_it(tmp_path: Path) -> None:
    """With its sources and models, as a project."""
    shutil.copytree(PROJECT_ROOT / "examples" / "dbt", tmp_path / "models")
    (tmp_path / "dbt_project.yml").write_text('name: ledger\nversion: "1.0"\nprofile: ledger\n')
    (tmp_path / "profiles.yml").write_text(
        f"ledger:\n  target: dev\n  outputs:\n    dev: {{type: duckdb, path: {tmp_path}/dbt.duckdb}}\n"
    )
    words = [os.environ["DBT"], "parse", "--profiles-dir", str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "target" / "semantic_manifest.json").is_file()
