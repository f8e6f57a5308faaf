"""The job simulate: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli.options import DebugOption, FormatOption, KafkaVersionOption
from jobs.cli.outcome import run_job
from jobs.cli_enums import Format
from jobs.exit_codes import DONE


def simulate(
    scenario: Annotated[str, typer.Option("--scenario", metavar="FILE", help="Scenario file (TOML); see scenarios/.")],
    output: Annotated[str, typer.Option("--output", metavar="DIR", help="New or empty folder for logs/ and truth/.")],
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="NUMBER", min=0, help="In place of the scenario's own seed.")
    ] = None,
    kafka_version: KafkaVersionOption = None,
    output_format: FormatOption = Format.TABLE,
    debug: DebugOption = False,
) -> None:
    """Simulate a cluster on a virtual clock: coordinator logs that Kafka's tools read, and their true history."""

    def job() -> int:
        from jobs.operations.simulate import simulate as run_simulate  # noqa: PLC0415
        from jobs.operations.simulate import tell  # noqa: PLC0415

        tell(run_simulate(scenario, output, seed=seed, kafka_version=kafka_version), output_format)
        return DONE

    run_job(job, debug)
