"""The job simulate: its options, and how it is run."""

from typing import Annotated

import typer

from jobs.cli import options
from jobs.cli.arguments import goes_with
from jobs.cli.outcome import job
from jobs.cli_enums import Format
from jobs.errors import ArgumentError
from jobs.exit_codes import DONE


@job
def simulate(
    scenario: Annotated[str, typer.Option("--scenario", metavar="FILE", help="Scenario file (TOML); see scenarios/.")],
    output: Annotated[
        str | None, typer.Option("--output", metavar="DIR", help="New or empty folder for logs/ and truth/.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed", metavar="NUMBER", min=0, max=options.INT64_MAX, help="In place of the scenario's own seed."
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(
            "--explain", metavar="GROUP", help="Tell, line by line, what this group's clients and the brokers say."
        ),
    ] = None,
    diagram: options.DiagramOption = None,
    exchange: Annotated[
        list[str] | None,
        typer.Option(
            "--exchange",
            metavar="GROUP",
            help="Write what this group's clients and the brokers say into truth/requests.jsonl and states.jsonl, and "
            "into warehouse/ for sql; '*' for all groups; may be repeated.",
        ),
    ] = None,
    from_time: options.FromOption = None,
    to_time: options.ToOption = None,
    timezone: options.TimezoneOption = None,
    kafka_version: options.KafkaVersionOption = None,
    output_format: options.FormatOption = Format.TABLE,
) -> int:
    """Simulate a cluster on a virtual clock: coordinator logs that Kafka's tools read, and their true history."""
    from jobs.console.conversation import write_conversation
    from jobs.console.sequence_diagram import require_diagram, write_diagram
    from jobs.laboratory.simulate import explain as explain_group
    from jobs.laboratory.simulate import explain_written, print_written
    from jobs.laboratory.simulate import simulate as run_simulate

    if output is None and explain is None:
        raise ArgumentError("name a new folder with --output, or a group with --explain")
    goes_with("--exchange", exchange, "--output", output)
    goes_with("--diagram", diagram, "--explain", explain)
    for option, given in (("--from", from_time), ("--to", to_time)):
        goes_with(option, given, "--explain or --exchange", explain or exchange)
    require_diagram(diagram)
    span = from_time, to_time, timezone
    written = None
    if output is not None:
        written = run_simulate(
            scenario,
            output,
            seed=seed,
            kafka_version=kafka_version,
            exchange=exchange or (),
            explained=explain,
            span=span,
        )
        if explain is None:
            print_written(written, output_format)
    if explain is not None:
        story = (
            explain_group(scenario, explain, seed=seed, kafka_version=kafka_version, span=span)
            if written is None
            else explain_written(written, explain)
        )
        write_conversation(story, output_format)
        if diagram is not None:
            write_diagram(story, diagram)
    return DONE
