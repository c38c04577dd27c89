"""The formula reproduces what the SEED paper prints, but for the misprints that are named."""

from __future__ import annotations

import pytest

from seedbed.papers.printed import value_of
from seedbed.papers.seed_costs import (
    Dollars,
    columns_of,
    for_billion_frames,
    is_off,
    recomputed,
    speed_ratio,
    step_ms,
)
from seedbed.papers.seed_tables import BILLS, LATENCIES, MISPRINTS, RATES, SPLITS


@pytest.mark.parametrize(
    ("text", "value"),
    [("2.4M", 2.4e6), ("16.5k", 16_500), ("30K", 30_000), ("$0.0475", 0.0475), ("17.97ms", 17.97),
     ("80.0x", 80), ("3.60", 3.6), ("", None)],
)  # fmt: skip
def test_printed_figures_are_read(text: str, value: float | None) -> None:
    assert value_of(text) == value


def test_a_text_that_is_no_figure_is_named() -> None:
    with pytest.raises(ValueError, match="'N/A' is no figure"):
        value_of("N/A")


def test_formula_by_hand() -> None:
    """Table 11, Atari: 213 CPUs and 8 TPU cores at 260 K frames a second."""
    (row, *_) = SPLITS
    hours = 1e9 / 260e3 / 3600
    assert recomputed(row.setup) == pytest.approx((213 * 0.0475 * hours, 8 * 1.00 * hours))
    assert for_billion_frames(Dollars(36.0, None), 1e7) == (pytest.approx(1.0), None)
    assert Dollars(1.0, None).total is None


def test_what_does_not_follow_is_what_is_named_a_misprint() -> None:
    off = {
        (table, row.setup.environment, row.setup.name, column)
        for table, rows in (*BILLS.items(), (11, SPLITS))
        for row in rows
        for column, printed, value in columns_of(row, BILLS.get(table, ()))
        if is_off(printed, value)
    }
    assert off == set(MISPRINTS)


def test_every_ratio_of_table_1_follows_from_its_speeds() -> None:
    for row in RATES:
        if row.ratio:
            ratio = speed_ratio(row)
            assert ratio is not None
            assert not is_off(row.ratio, ratio), row
    assert [row.setup.accelerators for row in RATES if speed_ratio(row) is None] == [
        "Nvidia P100", "2 x Nvidia P100", "TPU v3, 8 cores", "TPU v3, 8 cores", "Nvidia V100",
    ]  # fmt: skip


def test_no_latency_is_above_the_time_between_two_steps() -> None:
    for row in LATENCIES:
        for printed, setup in zip((row.impala, row.seed), row.setups, strict=True):
            if setup is not None:
                assert (value_of(printed) or 0.0) < step_ms(setup), row
    assert step_ms(LATENCIES[0].setups[1]) == pytest.approx(1000 * 312 * 4 / 74_000)
