"""Table 10 of the SEED paper (Espeholt et al. 2020, appendix A.3.2): final scores of 57 games."""

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple

# Median human-normalised score of SEED that section 4.3 states beside Figure 6. The rows of
# Table 10 give 18.46.
STATED_MEDIAN = 18.8


class Scores(NamedTuple):
    """Mean raw returns of a row, as printed: R2D2 over 3 seeds, SEED of 1 seed, 200 episodes."""

    r2d2: str
    seed: str


@cache
def table_10() -> dict[str, Scores]:
    """Return the rows by game, such as `MontezumaRevenge`. Humans are in evaluation/atari57.csv."""
    lines = (files("seedbed.papers") / "seed_atari.csv").read_text("utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    return {row["game"]: Scores(row["r2d2"], row["seed"]) for row in rows}
