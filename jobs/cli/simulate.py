"""The job simulate: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.outcome import job
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


@job
def simulate(
    scenario: Annotated[str, typer.Option("--scenario", metavar="FILE", help="Scenario file (TOML); see scenarios/.")],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="New or empty folder for logs/ and truth/.")],
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="NUMBER", min=0, help="In place of the scenario's own seed.")
    ] = None,
    kafka_version: options.KafkaVersionOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Simulate a cluster on a virtual clock: coordinator logs that Kafka's tools read, and their true history."""
    from jobs.laboratory.simulate import print_written
    from jobs.laboratory.simulate import simulate as run_simulate

    print_written(run_simulate(scenario, output, seed=seed, kafka_version=kafka_version), output_format)
    return DONE
