"""Runs one seeded part of a storm, or adds parts up."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path

from tests.storm.part import ALL_RUNS, LONGEST_MINUTES, add_up, run_part, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.storm", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="seed of all choices")
    parser.add_argument("--minutes", type=float, default=10.0, help="at most 40")
    names = [kind.name for kind in ALL_RUNS]
    parser.add_argument("--runs", nargs="+", choices=names, default=names, help="default: all")
    parser.add_argument("--out", type=Path, help="file for the part, as JSON")
    parser.add_argument("--total", type=Path, nargs="+", help="parts to add up")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the runs too
    if args.total:
        print(table(add_up([json.loads(path.read_text()) for path in args.total])))
        return 0
    if not 0 < args.minutes <= LONGEST_MINUTES:
        parser.error(f"--minutes {args.minutes:g}: a part takes at most {LONGEST_MINUTES}")
    runs = [kind for kind in ALL_RUNS if kind.name in args.runs]
    part = run_part(args.seed, args.minutes, runs)
    if args.out:
        args.out.write_text(json.dumps(part, indent=1) + "\n")
    print(table(part))
    return 1 if part["problems"] or part["examples"] else 0


if __name__ == "__main__":
    sys.exit(main())
