"""All mutants, or those with a text in their names. Exit code 1 if one survives, 2 if a hunt failed."""

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.harness import MUTANTS, Fate, HuntFailed, Mutant, hunt, is_of_tests

FAILED = "failed"


def fate_of(mutant: Mutant) -> tuple[str, str, float]:
    """What became of it, what the hunter said, and seconds."""
    begin_s = time.monotonic()
    try:
        fate, what = hunt(mutant, mutant.hunter)
    except HuntFailed as error:
        return FAILED, str(error), time.monotonic() - begin_s
    return fate, what, time.monotonic() - begin_s


def main(texts: Sequence[str]) -> int:
    """Print a line for each mutant and one for all. Tests that fail without a fault find nothing."""
    chosen = [mutant for mutant in MUTANTS if not texts or any(text in mutant.name for text in texts)]
    if not chosen:
        print("no such mutants")
        return 2
    files = sorted({file for one in chosen if is_of_tests(one.hunter) for file in one.hunter.split()})
    if files and (unplanted := hunt(None, " ".join(files)))[0] == Fate.FOUND:
        print(f"{unplanted[1]} fails without a fault")
        return 2
    fates: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, (fate, what, seconds) in zip(chosen, pool.map(fate_of, chosen), strict=True):
            fates.append(fate)
            print(f"{fate:8} {seconds:5.1f} s  {mutant.name}: {what[:160]}", flush=True)
    survived_count, failed_count = fates.count(Fate.SURVIVED), fates.count(FAILED)
    print(f"{len(fates)} mutants, {survived_count} survived, {failed_count} could not be hunted")
    return 2 if failed_count else int(survived_count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
