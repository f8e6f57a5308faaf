"""python -m tests.fuzz --mutants 1000000 --seed 7"""

import argparse
import sys
import time

from tests.fuzz.check import fuzz

STEP = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant, to go on or to repeat one")
    arguments = parser.parse_args()
    started = time.monotonic()
    totals = {"mutants": 0, "accepted": 0, "findings": 0, "records": 0, "values_refused": 0}
    last = arguments.first + arguments.mutants
    for first in range(arguments.first, last, STEP):
        summary = fuzz(arguments.seed, range(first, min(first + STEP, last)))
        for name in totals:
            totals[name] += getattr(summary, name)
        seconds = time.monotonic() - started
        print(f"{totals['mutants']:>9} mutants  {totals['mutants'] / seconds:6.0f}/s  {totals}", flush=True)
        for failure in summary.failures or ():
            print(f"FAILURE --seed {failure.seed} --first {failure.number} --mutants 1: {failure.what}")
            print(f"  {failure.data[:2000].hex()}")
        if summary.failures:
            return 1
    print(f"no failure in {totals['mutants']} mutants of seed {arguments.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
