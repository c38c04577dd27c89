"""The six games of GALA: one experiment, six times."""

from pathlib import Path

import pytest

from seedbed.config import load_experiment
from seedbed.envs.atari_games import rom_name

GALA = Path(__file__).parents[2] / "experiments" / "gala"
GAMES = {
    "beam-rider": "beam_rider",
    "breakout": "breakout",
    "pong": "pong",
    "qbert": "qbert",
    "seaquest": "seaquest",
    "space-invaders": "space_invaders",
}


def test_all_six_games_are_there() -> None:
    assert {path.stem for path in GALA.glob("*.yaml")} == set(GAMES)


@pytest.mark.parametrize("game", GAMES)
def test_a_game_differs_in_nothing_but_the_game(game: str) -> None:
    pong = load_experiment(GALA / "pong.yaml").model_dump()
    other = load_experiment(GALA / f"{game}.yaml").model_dump()
    assert other["name"] == f"gala-{game}"
    assert rom_name(other["environment"]["id"]) == GAMES[game]
    other["name"], other["environment"]["id"] = pong["name"], pong["environment"]["id"]
    assert other == pong


def test_more_simulators_go_with_a_larger_batch() -> None:
    """The paper's 32 and 64 simulators of one learner: the file says which two settings."""
    settings = ["gossip.replicas=1", "actor.envs_per_group=32", "learner.batch_size=64"]
    assert load_experiment(GALA / "pong.yaml", settings).actor.total_envs == 64
