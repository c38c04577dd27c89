"""Units of a comparison: what a run of one group may have in common with one of another."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seedbed.runtime.text import counted
from seedbed.sets.groups import setting_words
from seedbed.sets.records import Record
from seedbed.sets.states import LOST


class Unit(NamedTuple):
    """The place of a run in its group.

    Attributes:
        seed: Seed of the run.
        settings: Settings of the run within the group, in words.
        times: Number of runs before it with the same seed and settings.
        game: Environment, where groups have several; empty elsewhere.
    """

    seed: int
    settings: str
    times: int
    game: str

    def __str__(self) -> str:
        words = [str(self.seed), *filter(None, [self.settings, self.game])]
        return ", ".join([*words, *(f"again {self.times}",) * (self.times > 0)])


def units(
    records: Sequence[Record], searched: Sequence[str], strata: Sequence[str]
) -> dict[Unit, Record]:
    """Return the runs of a group by their units.

    Args:
        records: The runs.
        searched: Settings in which they differ.
        strata: Keys of which the group has all values.
    """
    found: dict[Unit, Record] = {}
    times = Counter[tuple[int, str, str]]()
    for record in records:
        settings = setting_words({key: record.settings[key] for key in searched})
        game = ", ".join(str(record.settings[key]) for key in strata)
        unit = record.seed, settings, game
        found[Unit(record.seed, settings, times[unit], game)] = record
        times[unit] += 1
    return found


def by_game(scores: Mapping[Unit, float]) -> dict[str, list[float]]:
    """Return the scores of each game, of the same seeds in the same order."""
    games = sorted({unit.game for unit in scores})
    seeds = sorted(unit for unit in scores if unit.game == games[0])
    return {game: [scores[unit._replace(game=game)] for unit in seeds] for game in games}


def common_places(sets: Sequence[Collection[Unit]]) -> set[Unit]:
    """Return the places that all groups have runs at, and of each seed every game.

    A place is a unit of whatever number: a seed that one group has twice is in common with one that
    another group has once, and both its runs count.
    """
    found = [set(map(place_of, some)) for some in sets]
    common = set.intersection(*found) if found else set()
    games = {unit.game for some in found for unit in some}
    return {one for one in common if all(one._replace(game=game) in common for game in games)}


def place_of(unit: Unit) -> Unit:
    """Return the first unit with the seed, the settings and the game of a unit."""
    return unit._replace(times=0)


def in_common(found: Collection[Unit]) -> str:
    """Return units in words."""
    if any(unit.settings for unit in found):
        return f"the {counted(len(found), 'run')} whose settings and seeds all groups have"
    seeds = ", ".join(map(str, sorted({unit.seed for unit in found})))
    games = " with every game" if any(unit.game for unit in found) else ""
    return f"the seeds that all groups have{games}: {seeds}"


def draws(found: Mapping[Unit, Record], finals: Mapping[Unit, float]) -> list[float]:
    """Return the score of each setting of a group: its mean, or the lowest of all if it lost a run.

    A setting without a run that is finished or lost is not drawn yet.
    """
    scores: dict[str, list[float]] = {}
    lost = set()
    for unit, record in found.items():
        if record.state in LOST:
            lost.add(unit.settings)
        elif unit in finals:
            scores.setdefault(unit.settings, []).append(finals[unit])
    means = {setting: float(np.mean(some)) for setting, some in scores.items()}
    lowest = min(means.values(), default=0.0)
    drawn = dict.fromkeys(means) | dict.fromkeys(lost)
    return [lowest if one in lost else means[one] for one in drawn] if means else []
