"""The 57 games, their scores, and the human-normalised score."""

from __future__ import annotations

import math

import pytest

from seedbed.evaluation import atari57


def test_the_table_is_whole() -> None:
    table = atari57.scores()
    assert len(table) == 57
    for game, score in table.items():
        assert math.isfinite(score.random), game
        # Every human beats random play, and so no score divides by zero or changes its sign.
        assert score.human > score.random, game


def test_random_is_zero_and_human_is_one_in_every_game() -> None:
    for game, score in atari57.scores().items():
        assert score.normalise(score.random) == 0, game
        assert score.normalise(score.human) == 1, game


@pytest.mark.parametrize(
    ("game", "score", "expected"),
    [
        ("Pong", 21.0, (21.0 + 20.7) / (14.6 + 20.7)),
        ("atari:Breakout", 854.1, (854.1 - 1.7) / (30.5 - 1.7)),
        ("montezuma_revenge", 900.0, 900.0 / 4753.3),
        ("Skiing", -29973.6, (-29973.6 + 17098.1) / (-4336.9 + 17098.1)),  # below random
    ],
)
def test_figures_worked_out_by_hand(game: str, score: float, expected: float) -> None:
    found = atari57.find(game)
    assert found is not None
    assert found.normalise(score) == pytest.approx(expected, rel=1e-12)


def test_every_game_has_a_rom() -> None:
    from seedbed.envs.atari_games import rom_name

    assert len({rom_name(f"atari:{game}") for game in atari57.scores()}) == 57


def test_another_game_has_no_scores() -> None:
    assert atari57.find("CartPole-v1") is None
    assert atari57.find("atari:Tetris") is None
