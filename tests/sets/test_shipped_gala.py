"""The shipped sweep of GALA's Table 1: six games, four methods, 64 simulators each."""

from collections import Counter

from seedbed.envs.atari_games import rom_name
from seedbed.sets.resolve import resolve
from seedbed.sets.sweep import read_sweep

GAMES = {"beam_rider", "breakout", "pong", "qbert", "seaquest", "space_invaders"}


def test_every_method_has_64_simulators_in_every_game() -> None:
    found = resolve(read_sweep("gala-six-games"), "gala-six-games")
    methods = Counter[tuple[str, int, str]]()
    for run in found.runs:
        experiment = run.experiment
        gossip, learner = experiment.gossip, experiment.learner
        assert gossip.replicas * experiment.actor.total_envs == 64
        assert learner.batch_size == experiment.actor.total_envs, "every environment once"
        game = run.name.removeprefix("gala-six-env-")[:4].replace("-", "_")
        assert rom_name(experiment.environment.id).startswith(game), "a cut name has the game"
        methods[rom_name(experiment.environment.id), gossip.replicas, gossip.topology] += 1
    assert {game for game, _, _ in methods} == GAMES
    assert len(methods) == 24
    assert set(methods.values()) == {10}
