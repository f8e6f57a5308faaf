"""The hunters. `python -m tests.mutants.hunt HUNTER FOLDER` runs one on the code in the folder; see `harness`.

A hunter is a stateful test, or a conformance trace. It knows nothing of the mutant.
"""

import sys
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine

from tests.conformance.families import assignors, group_commands
from tests.conformance.families.cases import read_cases
from tests.coordinator_core.stateful.classic_machine import ClassicMachine
from tests.coordinator_core.stateful.consumer_machine import ConsumerMachine
from tests.coordinator_core.stateful.group_machine import live_at_random
from tests.coordinator_core.stateful.persisted_machine import PersistedSharePartitionMachine
from tests.coordinator_core.stateful.share_machine import ShareMachine
from tests.mutants.harness import FOUND_CODE, SURVIVED_CODE, require_copy

EXAMPLES: Final = 1500
CASES: Final = 150
TRACES: Final = Path(__file__).resolve().parents[1] / "data" / "traces"


def live(machine: type[RuleBasedStateMachine]) -> None:
    """The same random lives each time."""
    live_at_random(machine, settings(derandomize=True), max_examples=EXAMPLES, phases=[Phase.generate])


def judge(name: str) -> None:
    """The first cases of a trace of a server-side assignor."""
    for case in islice(read_cases(TRACES / f"assignor_server_{name}.jsonl.gz"), CASES):
        fault = assignors.server_fault(case, assignors.SERVER_ASSIGNORS[name])
        assert fault is None, fault


def lives(name: str) -> None:
    """A trace of lives of groups: each request is put to the live coordinator."""
    failures = group_commands.judge_all(TRACES / f"group_{name}.jsonl.gz").failures
    assert not failures, failures[0]


HUNTERS: Final[dict[str, Callable[[], None]]] = {
    "classic": partial(live, ClassicMachine),
    "consumer": partial(live, ConsumerMachine),
    "share": partial(live, ShareMachine),
    "share partition": partial(live, PersistedSharePartitionMachine),
    "range": partial(judge, "range"),
    "uniform": partial(judge, "uniform"),
    "simple": partial(judge, "simple"),
    "migration": partial(lives, "migration"),
}


def main(hunter: str, folder: str) -> int:
    """The exit code. What was found is the last line on standard output."""
    require_copy(folder)
    run = HUNTERS[hunter]
    try:
        run()
    except Exception as error:
        lines = str(error).splitlines()
        print(f"{type(error).__name__}: {lines[0] if lines else ''}")
        return FOUND_CODE
    print("nothing")
    return SURVIVED_CODE


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
