"""Seeds of environments: no two alike in a run, whatever the fleet."""

from __future__ import annotations

import numpy as np
import pytest

from seedbed.envs.seeds import environment_seed, moved_seed
from seedbed.spec import ACTORS, ENVIRONMENTS, GROUPS


def test_no_two_environments_of_a_large_fleet_share_a_seed() -> None:
    seeds = {
        environment_seed(1, actor, group, i)
        for actor in range(610)
        for group in range(2)
        for i in range(64)
    }
    assert len(seeds) == 610 * 2 * 64
    assert min(seeds) >= 0
    assert max(seeds) < 2**31  # what ALE takes


def test_the_corners_of_the_range_are_distinct() -> None:
    corners = {
        environment_seed(7, actor, group, i)
        for actor in (0, 1, ACTORS - 1)
        for group in (0, 1, GROUPS - 1)
        for i in (0, 1, ENVIRONMENTS - 1)
    }
    assert len(corners) == 27


@pytest.mark.parametrize("place", [(0, 0, 0), (3, 1, 5)])
def test_run_seeds_that_are_near_give_seeds_that_are_far(place: tuple[int, int, int]) -> None:
    seeds = [environment_seed(run, *place) for run in range(1000)]
    assert len(set(seeds)) > 990
    assert len(set(np.diff(seeds))) > 990


def test_neighbours_are_spread_over_the_whole_range() -> None:
    seeds = np.array([environment_seed(1, 0, 0, i) for i in range(ENVIRONMENTS)])
    counts, _ = np.histogram(seeds, bins=16, range=(0, 2**31))
    assert counts.min() > ENVIRONMENTS / 16 * 0.7


@pytest.mark.parametrize(
    ("place", "text"),
    [((ACTORS, 0, 0), "actor_index 16384"), ((0, -1, 0), "group_index -1"), ((0, 0, 4096), "4095")],
)
def test_an_index_without_a_seed_is_refused(place: tuple[int, int, int], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        environment_seed(1, *place)


def test_another_incarnation_has_other_seeds_and_none_twice() -> None:
    seeds = [environment_seed(1, 0, 0, i) for i in range(ENVIRONMENTS)]
    assert [moved_seed(seed, 0) for seed in seeds] == seeds
    starts = (1, 2, 3, 500, 40_000_000, 2**31, 2**40 + 1)
    moved = {start: [moved_seed(seed, start) for seed in seeds] for start in starts}
    for ours in moved.values():
        assert len(set(ours)) == ENVIRONMENTS
        assert min(ours) >= 0
        assert max(ours) < 2**31
        assert not any(a == b for a, b in zip(ours, seeds, strict=True))
    assert len({tuple(ours) for ours in moved.values()}) == len(starts)
