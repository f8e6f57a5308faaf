"""Deliver the findings of a night: to a file for another program, or to a command that posts them.

`FILE.json` gets one JSON object, and `FILE.md` in the same folder the same as Markdown for a chat. Any other target is
a command: it gets the object on stdin, and the Markdown in the environment. A failed delivery is reported, and has no
other effect.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from coordinator_core.text import counted
from jobs.console.command_name import command
from jobs.console.output import json_line, printable, say
from jobs.delta.cluster_tables import ClusterTables
from jobs.delta.filesystems import write_whole
from jobs.queries.answers.group_verdicts import OK, GroupVerdict, group_verdicts
from jobs.settings import Settings

FILE_ENDING: Final = ".json"
MARKDOWN: Final = "GROUPLEDGER_MARKDOWN"
"""Environment variable of the command."""
GROUPS_MAX: Final = 10
COMMAND_SECONDS_MAX: Final = 60
SHELL: Final = "/bin/sh"
OUTCOMES: Final[Mapping[int, str]] = {0: "done", 3: "done, but something is missing or could not be read"}


def attention(tables: ClusterTables) -> list[GroupVerdict]:
    """Groups whose verdict is not OK, those that need attention first."""
    return [line for line in group_verdicts(tables) if line.verdict != OK]


def with_attention(facts: Mapping[str, Any], groups: Sequence[GroupVerdict]) -> dict[str, Any]:
    """The facts of a night and the groups that need attention, as one JSON object with stable names."""
    shown = [
        {"group_id": it.group_id, "group_type": it.group_type, "verdict": it.verdict, "why": it.why} for it in groups
    ]
    return {**facts, "groups": shown}


def is_news(facts: Mapping[str, Any]) -> bool:
    """Did a night find anything new, or could it not read all that it was given?"""
    found = facts.get("found", {})
    faults = facts.get("captured", {}).get("faults") or facts.get("replayed", {}).get("not_replayed")
    return bool(not found or found["new"] or found["over"] or faults)


def markdown_of(facts: Mapping[str, Any], groups: Sequence[GroupVerdict], settings: Settings) -> str:
    """The facts as Markdown for a chat.

    Group names are formatted as code, so that no chat treats one as a mention or a link.
    """
    outcome = OUTCOMES.get(facts["exit_code"], "failed")
    lines = [f"**Groupledger, cluster {_code(settings.cluster_id)}: {outcome}**", ""]
    if "error" in facts:
        return "\n".join([*lines, _code(facts["error"]), ""])
    lines += [printable(facts["found"]["headline"]), "", facts["found"]["summary"], ""]
    if groups:
        lines += ["| group | verdict | why |", "| --- | --- | --- |"]
        lines += [f"| {_code(it.group_id)} | {it.verdict} | {it.why} |" for it in groups[:GROUPS_MAX]]
        if len(groups) > GROUPS_MAX:
            lines += ["", f"and {counted(len(groups) - GROUPS_MAX, 'group')} more"]
        lines += ["", _code(command("groups --needs-attention" + settings.place_words))]
    return "\n".join([*lines, ""])


def _code(text: str) -> str:
    """Inline code that is safe within a table."""
    return "`" + printable(text).replace("`", "'").replace("|", "\\|") + "`"


def tell(target: str, facts: Mapping[str, Any], groups: Sequence[GroupVerdict], settings: Settings) -> None:
    """Deliver the facts of a night that ended, or failed with the `error` in them, before its run began or after."""
    deliver(target, with_attention(facts, groups), markdown_of(facts, groups, settings), say)


def deliver(target: str, facts: Mapping[str, Any], markdown: str, say: Callable[[str], None]) -> None:
    """Write the files, or run the command; failures are reported with `say`."""
    try:
        if target.endswith(FILE_ENDING):
            path = Path(target).expanduser()
            write_whole(path, json_line(facts).encode())
            write_whole(path.with_suffix(".md"), markdown.encode())
            return
        done = subprocess.run(
            [SHELL, "-c", target],
            input=json_line(facts),
            env={**os.environ, MARKDOWN: markdown},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            timeout=COMMAND_SECONDS_MAX,
            check=False,
        )
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"the notification was not delivered: {printable(str(error))}")
        return
    if done.returncode:
        said = printable(done.stderr.strip().rpartition("\n")[2])
        say(f"the notification was not delivered: exit code {done.returncode} of {target!r}: {said}")
