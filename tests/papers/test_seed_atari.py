"""Table 10: the printed figures, and what is computed from them against what the text states."""

from __future__ import annotations

import statistics

import pytest

from seedbed.cli.suite_table import table
from seedbed.evaluation.atari57 import scores
from seedbed.papers.seed_atari import STATED_MEDIAN, table_10


def test_the_rows_are_the_printed_ones() -> None:
    rows = table_10()
    assert list(rows) == list(scores()), "57 games, in the paper's order"
    # Sums of the columns, from the text of the paper.
    assert sum(float(row.r2d2) for row in rows.values()) == pytest.approx(15272049.1, abs=0.04)
    assert sum(float(row.seed) for row in rows.values()) == pytest.approx(14560345.4, abs=0.04)
    assert rows["Skiing"] == ("-30021.7", "-29973.6")
    assert rows["Qbert"] == ("408850.0", "546857.5")


def test_the_medians_and_the_one_that_does_not_follow() -> None:
    medians, means = {}, {}
    for column in ("r2d2", "seed"):
        normalised = [
            (float(getattr(row, column)) - scores()[game].random)
            / (scores()[game].human - scores()[game].random)
            for game, row in table_10().items()
        ]
        medians[column] = statistics.median(normalised)
        means[column] = statistics.mean(normalised)
    assert medians["r2d2"] == pytest.approx(19.227, abs=5e-4)  # Double Dunk
    assert medians["seed"] == pytest.approx(18.465, abs=5e-4)  # Zaxxon
    # Section 4.3 states 1880 %: further off than rounding explains, and so it is named.
    assert abs(medians["seed"] - STATED_MEDIAN) > 0.05
    result = table([])
    (block,) = result["aggregates"]
    assert {name: block[name]["median"] for name in medians} == pytest.approx(medians)
    assert {name: block[name]["mean"] for name in means} == pytest.approx(means)
    assert any("states 1880 %" in remark and "1846.5" in remark for remark in result["remarks"])
