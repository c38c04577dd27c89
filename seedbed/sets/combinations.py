"""The settings that a sweep tries: every combination of its axes."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.text import counted
from seedbed.sets.ranges import Range
from seedbed.sets.sweep import MOST_RUNS, Axis, Sweep, axes_of

# Values by key, of one setting.
Values = dict[str, Any]

_MOST_TRIES = 100  # a draw, of which some are alike
_MOST_EXCLUDED_FROM = 100_000  # runs, of which `exclude` takes all but `MOST_RUNS`


def combinations(sweep: Sweep, source: str) -> list[Values]:
    """Return the values of every setting: the lists' product, for each draw of the ranges.

    The last list varies fastest, and the draws the slowest.

    Raises:
        SeedbedError: CONFIG, an axis is wrong; ranges without draws, or draws without ranges;
            `together` or `exclude` names what is no axis, or matches nothing; there are more than
            `MOST_RUNS` runs, or none.
    """
    axes = axes_of(sweep, source)
    lists = {key: axis for key, axis in axes.items() if not isinstance(axis, Range)}
    ranges = {key: axis for key, axis in axes.items() if isinstance(axis, Range)}
    _check_draws(sweep, ranges, source)
    bundles = _bundles(sweep, axes, lists, source)
    draws = sweep.draws.number if ranges else 1
    seeds = sweep.seeds if isinstance(sweep.seeds, int) else len(sweep.seeds)
    count = draws * seeds
    for bundle in bundles:
        count *= len(bundle)
    if count > (_MOST_EXCLUDED_FROM if sweep.exclude else MOST_RUNS):
        _refuse_count(count, source)
    found = []
    for drawn in _drawn(ranges, draws, sweep.draws.seed, source):
        for chosen in itertools.product(*bundles):
            values = {key: value for part in chosen for key, value in part.items()} | drawn
            found.append({key: values[key] for key in axes})
    kept = _without_excluded(sweep, found, axes, source)
    if len(kept) * seeds > MOST_RUNS:
        _refuse_count(len(kept) * seeds, source)
    return kept


def _drawn(ranges: Mapping[str, Range], number: int, seed: int, source: str) -> list[Values]:
    """Return so many draws of the ranges, of which no two are alike."""
    found: dict[str, Values] = {}
    for draw in range(number * _MOST_TRIES):
        drawn = {key: axis.draw(key, seed, draw) for key, axis in ranges.items()}
        found.setdefault(repr(drawn), drawn)
        if len(found) == number:
            return list(found.values())
    raise ConfigError(
        f"{source}: draws is {number}, and the ranges have {counted(len(found), 'value')} that "
        f"differ: draw {len(found)}, or take the values as a list"
    )


def _refuse_count(count: int, source: str) -> None:
    raise ConfigError(
        f"{source}: {counted(count, 'run')}, and a set has at most {MOST_RUNS:,}: take fewer "
        "values or seeds, or draws from ranges"
    )


def _check_draws(sweep: Sweep, ranges: Mapping[str, Range], source: str) -> None:
    if ranges and not sweep.draws.number:
        raise ConfigError(
            f"{source}: axes: {next(iter(ranges))} is a range, and draws is 0: set how many values "
            "to draw (draws: 24, or --draws 24)"
        )
    if sweep.draws.number and not ranges:
        raise ConfigError(
            f"{source}: draws is {sweep.draws.number}, and no axis is a range: lists are tried "
            "whole"
        )


def _bundles(
    sweep: Sweep, axes: Mapping[str, Axis], lists: Mapping[str, Sequence[Any]], source: str
) -> list[list[Values]]:
    """Return what varies on its own: a list for each axis, or for several that move as one."""
    owner: dict[str, tuple[str, ...]] = {}
    for keys in sweep.together:
        if len(keys) < 2:
            raise ConfigError(
                f"{source}: together: {keys} names {len(keys)}, and at least two axes move as one"
            )
        for key in keys:
            if key not in lists:
                kind = "a range" if key in axes else "no axis"
                raise ConfigError(f"{source}: together: {key} is {kind}; name axes with a list")
            if key in owner:
                raise ConfigError(f"{source}: together: {key} is there twice")
            owner[key] = tuple(keys)
        sizes = {key: len(lists[key]) for key in keys}
        if len(set(sizes.values())) > 1:
            words = ", ".join(f"{key} has {size}" for key, size in sizes.items())
            raise ConfigError(f"{source}: together: as many values each, and {words}")
    bundles: dict[tuple[str, ...], list[Values]] = {}
    for key in lists:
        bundle = owner.get(key, (key,))
        if bundle not in bundles:
            rows = zip(*(lists[name] for name in bundle), strict=True)
            bundles[bundle] = [dict(zip(bundle, row, strict=True)) for row in rows]
    return list(bundles.values())


def _without_excluded(
    sweep: Sweep, found: list[Values], axes: Iterable[str], source: str
) -> list[Values]:
    excluded: set[int] = set()
    for rule in sweep.exclude:
        for key in rule:
            if key not in axes:
                raise ConfigError(f"{source}: exclude: {key} is no axis")
        if not rule:
            raise ConfigError(f"{source}: exclude: an entry without a key would leave out all runs")
        matched = {at for at, values in enumerate(found) if _matches(values, rule)}
        if not matched:
            raise ConfigError(f"{source}: exclude: no setting has {rule}")
        excluded |= matched
    kept = [values for at, values in enumerate(found) if at not in excluded]
    if not kept:
        raise ConfigError(f"{source}: exclude leaves no setting")
    return kept


def _matches(values: Values, rule: Mapping[str, Any]) -> bool:
    # Without `true` being 1.
    return all(
        values[key] == value and isinstance(values[key], bool) == isinstance(value, bool)
        for key, value in rule.items()
    )
