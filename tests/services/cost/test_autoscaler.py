"""The number of actors by price, on simulated curves of a learner."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from seedbed.services.cost.autoscaler import Autoscaler, AutoscalerSettings, Sample

POLL_S = 5.0
MOST = 200


class World:
    """A learner that saturates, actors that take a while to start, and a noisy count of frames."""

    def __init__(
        self, fps: Callable[[int], float], fixed: float, actor: float, actors: int = 2
    ) -> None:
        self.fps, self.fixed, self.actor = fps, fixed, actor
        self.scaler = Autoscaler(AutoscalerSettings(enabled=True, maxReplicas=MOST))
        self.wanted = self.running = actors
        self.room = MOST
        self.frames = self.at = 0.0
        self.away: tuple[float, float] = 0.0, 0.0  # minutes in which the learner is away
        self.spot_hours = math.inf  # between two times that an actor is taken
        self.back_at: list[float] = []
        self.asked: list[int] = []
        self.random = random.Random(1)

    def hours(self, hours: float) -> None:
        end = self.at + 3600 * hours
        while self.at < end:
            self.at += POLL_S
            self.back_at = [at for at in self.back_at if at > self.at]
            for _ in range(self.running):
                if self.random.random() < POLL_S / 3600 / self.spot_hours:
                    self.running -= 1
                    self.back_at.append(self.at + 60)
            there = min(self.wanted, self.room) - len(self.back_at)
            self.running += max(-20, min(2, there - self.running))
            trains = not self.away[0] * 60 <= self.at < self.away[1] * 60
            if trains:
                self.frames += POLL_S * self.fps(self.running) * self.random.uniform(0.9, 1.1)
            rate = self.fixed + self.actor * self.running
            sample = Sample(self.at, int(self.frames), self.running, self.wanted, rate, trains)
            target = self.scaler.target(sample)
            if target is not None:
                self.wanted = target
                self.asked.append(target)

    def mean(self, actors: int) -> float:
        return (self.fixed + self.actor * actors) / self.fps(actors)

    @property
    def optimum(self) -> float:
        return min(self.mean(actors) for actors in range(1, MOST + 1))


def saturating(most: float, each: float) -> Callable[[int], float]:
    return lambda actors: most * (1 - math.exp(-actors * each / most))


def limited(most: float, each: float) -> Callable[[int], float]:
    return lambda actors: min(most, actors * each)


def sinking(most: float, each: float) -> Callable[[int], float]:
    """Beyond its best the learner is slower with every actor."""
    return lambda actors: most * (actors * each / most) * math.exp(1 - actors * each / most)


@pytest.mark.parametrize("curve", [saturating, limited, sinking])
@pytest.mark.parametrize("most", [3_000.0, 40_000.0])
@pytest.mark.parametrize(("fixed", "actor"), [(0.71, 0.042), (3.67, 0.012), (0.19, 0.19)])
@pytest.mark.parametrize("actors", [2, 60])
def test_within_a_tenth_of_the_optimum_and_then_still(
    curve: Callable[[float, float], Callable[[int], float]],
    most: float,
    fixed: float,
    actor: float,
    actors: int,
) -> None:
    world = World(curve(most, 600.0), fixed, actor, actors)
    world.hours(3)
    assert world.scaler.holds
    assert world.mean(world.wanted) <= 1.1 * world.optimum
    asked = len(world.asked)
    assert asked <= 25
    world.hours(8)
    assert len(world.asked) == asked, "no oscillation"


def test_a_learner_that_becomes_faster_gets_more_actors() -> None:
    world = World(saturating(3_000.0, 600.0), 0.71, 0.042)
    world.hours(3)
    before, world.fps = world.wanted, saturating(40_000.0, 600.0)
    world.hours(5)
    assert world.wanted > 2 * before
    assert world.mean(world.wanted) <= 1.1 * world.optimum


@pytest.mark.parametrize("away", [(0, 10), (4, 10), (4, 14), (10, 20), (20, 40)])
def test_a_learner_that_is_away_is_not_measured(away: tuple[float, float]) -> None:
    world = World(saturating(12_000.0, 500.0), 0.71, 0.025)
    world.away = away
    world.hours(4)
    assert world.scaler.holds
    assert world.mean(world.wanted) <= 1.1 * world.optimum


@pytest.mark.parametrize("hours", [1.0, 2.0])
def test_spot_takes_an_actor_now_and_then(hours: float) -> None:
    world = World(saturating(12_000.0, 500.0), 0.71, 0.025)
    world.spot_hours = hours
    world.hours(8)
    assert world.scaler.holds
    assert world.mean(world.wanted) <= 1.1 * world.optimum


def test_a_full_cluster_ends_the_search_at_what_it_has() -> None:
    world = World(saturating(40_000.0, 600.0), 3.67, 0.012)
    world.room = 11
    world.hours(6)
    assert world.scaler.holds
    assert 8 <= world.wanted <= 11


def test_what_new_actors_do_before_they_have_settled_is_not_measured() -> None:
    scaler = Autoscaler(AutoscalerSettings(enabled=True, maxReplicas=MOST))
    frames = second = 0
    while not scaler.means:
        second += 5
        frames += 5 if second < 25 else 5000
        scaler.target(Sample(float(second), frames, 4, 4, 3.6))
    assert scaler.means[4] == pytest.approx(1e6 / 1000, rel=1e-3), "0.001 dollars a second"


def test_zero_stays_zero() -> None:
    """The end, a pause, or `kubectl scale --replicas=0`."""
    world = World(saturating(3_000.0, 600.0), 0.71, 0.042)
    world.hours(1)
    world.wanted, asked = 0, len(world.asked)
    world.hours(10)
    assert (world.wanted, len(world.asked)) == (0, asked)


def test_the_bounds_hold_and_another_hand_begins_anew() -> None:
    scaler = Autoscaler(AutoscalerSettings(enabled=True, minReplicas=4, maxReplicas=8))
    assert scaler.target(Sample(0.0, 0, 2, 2, 1.0)) == 4
    assert scaler.target(Sample(5.0, 0, 4, 4, 1.0)) is None
    assert scaler.target(Sample(10.0, 0, 4, 30, 1.0)) == 8
