"""whatif: from a simulated log through silver to the answers, for a classic group and a share group."""

import csv
import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from jobs.console.progress import Steps
from jobs.delta.arrow_schemas import arrow_schema
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.warehouse import Warehouse
from jobs.errors import ArgumentError, WhatIfArgumentError, WhatIfJobError
from jobs.exit_codes import DONE
from jobs.laboratory.simulate import simulate
from jobs.laboratory.whatif import asked, print_rows, whatif
from jobs.operations.nightly import run_nightly
from jobs.operations.run_context import RunContext
from jobs.settings import Settings, load_settings
from jobs.spark.executors import Executor
from schemas.tables.silver import CONFIGS
from simulator.simulation.scenario_file import parse_scenario
from simulator.simulation.simulation import Simulation
from simulator.simulation.truth import MemorySink
from simulator.whatif.verdicts import TOTAL, WhatIfRow

SCENARIO = """
name = "whatif"
start = 2026-01-05T08:00:00Z
duration = "6m"
seed = 4
[cluster]
brokers = 1
consumer_offsets_partitions = 2
share_group_state_partitions = 2
share_delivery_count_limit = {limit}
[[topic]]
name = "jobs"
partitions = 2
rate = 20.0
poison_every = 150
[[group]]
name = "billing"
topics = ["jobs"]
members = 2
[[group]]
name = "workers"
protocol = "share"
topics = ["jobs"]
members = 2
acknowledge = "explicit"
on_poison = "release"
poll_interval = "2s"
[[fault]]
kind = "rolling_deploy"
at = "2m"
group = "billing"
duration = "10s"
"""


class Replayed:
    """The scenario, replayed into silver."""

    def __init__(self, executor: Executor, root: Path) -> None:
        scenario = root / "whatif.toml"
        scenario.write_text(SCENARIO.format(limit=5), encoding="utf-8")
        simulate(str(scenario), str(root / "out"))
        # As where nobody captures the metadata log: settings are assumed.
        shutil.rmtree(root / "out" / "logs" / "__cluster_metadata-0")
        self.settings: Settings = load_settings(
            {"warehouse": str(root / "warehouse"), "cluster_id": "test", "segments": (str(root / "out" / "logs"),)},
            environment={},
        )
        steps = Steps(executor, Console(file=StringIO(), width=200))
        self.code = run_nightly(
            RunContext(
                executor,
                Warehouse(self.settings.warehouse),
                self.settings,
                run_id="r1",
                started_at=datetime(2026, 1, 6, tzinfo=UTC),
                steps=steps,
            )
        )

    def ask(self, group_id: str, *changed: str, **window: int) -> list[WhatIfRow]:
        """The answers; Spark is not needed for them."""
        return whatif(
            ClusterTables(Warehouse(self.settings.warehouse), "test"),
            group_id=group_id,
            question=asked(changed, (), self.settings),
            **window,
        )


@pytest.fixture(scope="module")
def replayed(no_spark: Executor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    """One replay for all tests here."""
    replayed = Replayed(no_spark, tmp_path_factory.mktemp("whatif"))
    assert replayed.code == DONE
    yield replayed


def test_a_deploy_with_static_members(replayed: Replayed) -> None:
    """Four rebalances of two restarts would not have been."""
    rows = replayed.ask("billing", "group.instance.id=static")
    assert [row.verdict for row in rows] == ["KEPT", *["AVOIDED"] * 4, None]
    assert rows[-1].recorded.startswith("5 of 5 rebalances reproduced")


def test_a_window_of_time(replayed: Replayed) -> None:
    """Only rebalances from --from to --to are answered."""
    all_rows = replayed.ask("billing", "group.instance.id=static")
    first_ms, last_ms = all_rows[1].at_ms, all_rows[3].at_ms
    assert first_ms is not None and last_ms is not None
    rows = replayed.ask("billing", "group.instance.id=static", from_ms=first_ms - 5000, to_ms=last_ms)
    assert [row.at_ms for row in rows if row.kind != TOTAL] == [row.at_ms for row in all_rows[1:3]]


def test_a_lower_delivery_limit_is_what_the_simulator_shows(replayed: Replayed) -> None:
    """Just those poison records which would have been archived earlier truly are, under the lower limit."""
    sink = MemorySink()
    Simulation(parse_scenario(SCENARIO.format(limit=3), "test.toml"), sink).run()
    truth = {
        (line["topic"], line["partition"], offset)
        for line in sink.lines["archived"]
        if line["why"] == "DELIVERY_LIMIT"
        for offset in range(line["first_offset"], line["last_offset"] + 1)
    }
    rows = [row for row in replayed.ask("workers", "share.delivery.count.limit=3") if row.kind != TOTAL]
    found = {
        (row.topic, row.partition, offset)
        for row in rows
        if row.first_offset is not None and row.last_offset is not None
        for offset in range(row.first_offset, row.last_offset + 1)
    }
    assert found and found == truth
    assert {row.confidence for row in rows} == {"CERTAIN"}


def test_what_the_metadata_log_tells_is_not_assumed(replayed: Replayed, tmp_path: Path) -> None:
    """The group's own limit is 5 since the beginning, so it is neither asked for nor the given one."""
    copy = tmp_path / "warehouse"
    shutil.copytree(replayed.settings.warehouse, copy)
    warehouse = Warehouse(str(copy))
    config = {"cluster_id": "test", "resource_type": "GROUP", "resource_name": "workers", "value": "5"}
    config |= {"name": "share.delivery.count.limit"}
    rows = pa.Table.from_pylist([config | {"from_log_offset": 7}], arrow_schema(CONFIGS))
    warehouse.write(CONFIGS, rows, app_id="test", version=1)

    def ask(warehouse: Warehouse, limit: int) -> list[WhatIfRow]:
        question = asked([f"share.delivery.count.limit={limit}"], ["share.delivery.count.limit=7"], replayed.settings)
        return whatif(ClusterTables(warehouse, "test"), group_id="workers", question=question)

    assert ask(Warehouse(replayed.settings.warehouse), 8)[-1].would_be == "nothing to compare"
    total = ask(warehouse, 8)[-1]
    assert total.would_be.startswith("MORE_TRIES ")
    assert "LIMIT_RECORDED" not in total.assumptions
    with pytest.raises(WhatIfJobError, match=r"was 5 already$"):
        ask(warehouse, 5)


def test_formats(replayed: Replayed) -> None:
    """JSON has one object a line, CSV one line a row, the table the assumptions in words."""
    rows = replayed.ask("billing", "group.instance.id=static")
    text = {name: StringIO() for name in ("json", "csv", "table")}
    for name, out in text.items():
        print_rows(rows, name, out)
    objects = [json.loads(line) for line in text["json"].getvalue().splitlines()]
    assert [one["verdict"] for one in objects] == [row.verdict for row in rows]
    assert objects[0]["at"].startswith("2026-01-05T08:00:")
    assert len(list(csv.DictReader(StringIO(text["csv"].getvalue())))) == len(rows)
    assert "AVOIDED 4, KEPT 1" in text["table"].getvalue()
    assert "  SAME_CLIENT: " in text["table"].getvalue()


def test_the_table_of_a_share_group(replayed: Replayed) -> None:
    """Ranges of offsets, and how many deliveries fewer there would have been."""
    out = StringIO()
    print_rows(replayed.ask("workers", "share.delivery.count.limit=3"), "table", out)
    assert "ARCHIVED_EARLIER" in out.getvalue()
    assert "deliveries: -" in out.getvalue()


def test_what_cannot_be_answered_is_reported(replayed: Replayed) -> None:
    """Unknown groups, settings of another type of group, a window that ends before it begins."""
    with pytest.raises(ArgumentError, match="no group 'nobody'"):
        replayed.ask("nobody", "group.instance.id=static")
    with pytest.raises(WhatIfJobError, match="is no share group"):
        replayed.ask("billing", "share.delivery.count.limit=3")
    with pytest.raises(WhatIfJobError, match="ask for its delivery limit"):
        replayed.ask("workers", "group.instance.id=static")
    for span, words in (({"to_ms": 1_000}, "before the log begins"), ({"from_ms": 2**41}, "after the end")):
        with pytest.raises(ArgumentError, match=f"{words}.* was read from"):
            replayed.ask("billing", "group.instance.id=static", **span)
    with pytest.raises(WhatIfArgumentError, match="must be before"):
        replayed.ask("billing", "group.instance.id=static", from_ms=2, to_ms=1)
    with pytest.raises(WhatIfArgumentError, match="cannot be asked") as error:
        replayed.ask("billing", "colour=blue")
    assert error.value.exit_code == 2


def test_a_release_is_asked_by_its_number(replayed: Replayed) -> None:
    """As Kafka writes it; one whose rules nobody knows is a wrong argument."""
    question = asked(["group.instance.id=static"], (), replayed.settings, "4.4.0")
    assert question.recorded.kafka_version == (4, 4)
    with pytest.raises(WhatIfArgumentError, match=r"no Kafka version '3\.9' is known: use one of 4\.0"):
        asked(["group.instance.id=static"], (), replayed.settings, "3.9")
