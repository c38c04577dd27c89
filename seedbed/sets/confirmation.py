"""The best settings of a set, trained again on seeds that did not choose them.

The best of many draws is lucky (Eimer et al. 2023): what is claimed of it comes from these seeds.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbed.runtime.exit_codes import ConfigError
from seedbed.sets.halving import pruned_last
from seedbed.sets.resolve import ResolvedSet, Run, resolve
from seedbed.sets.runs import load_runs

# Far above the seeds that a set counts from its experiment's own.
FIRST_SEED = 1_000_001
_SETTINGS = 2


def confirmation(folder: Path, wanted: ResolvedSet, seeds: int) -> ResolvedSet:
    """Return the runs that confirm the best two settings of a set.

    Where successive halving has left one, the other is the best of those pruned last.

    Args:
        folder: The folder of the set.
        wanted: The set.
        seeds: Number of fresh seeds of each setting.

    Raises:
        SeedbedError: CONFIG, the set has no ranking yet; USAGE and RUN_DIRECTORY, as `compare`.
        ImportError: SciPy is not installed.
    """
    if "environment.id" in wanted.sweep.axes:
        raise ConfigError(
            "--confirm takes the best two settings, and returns of different environments do not "
            "compare: confirm a set of one environment"
        )
    ranking = load_runs(folder).compare(list(wanted.sweep.axes))
    ranked = [row["values"] for row in ranking["groups"] if row[ranking["ranked_by"]] is not None]
    ranked += pruned_last(folder) if ranked else []
    if len(ranked) < _SETTINGS:
        raise ConfigError(
            f"{folder} has {len(ranked)} settings with a result, and --confirm takes the best "
            f"{_SETTINGS}: train them first. {' '.join(ranking['notes'])}"
        )
    chosen = range(FIRST_SEED, FIRST_SEED + seeds)
    runs = [run for values in ranked[:_SETTINGS] for run in _runs(wanted, values, chosen)]
    runs.sort(key=lambda run: run.seed)
    return ResolvedSet(wanted.name, wanted.sweep, wanted.base, runs, ())


def _runs(wanted: ResolvedSet, values: Mapping[str, Any], seeds: Sequence[int]) -> Sequence[Run]:
    """Return runs of one setting of a set."""
    update = {
        "axes": {key: [value] for key, value in values.items()},
        "seeds": tuple(seeds),
        "draws": type(wanted.sweep.draws)(),
        "exclude": [],
        "together": [],
        "name": wanted.name,
    }
    return resolve(wanted.sweep.model_copy(update=update), f"set {wanted.name}").runs
