"""The best settings of a set, trained again on seeds that did not choose them.

The best of many draws is lucky (Eimer et al. 2023): what is claimed of it comes from these seeds.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.install import how_to_install
from seedbed.sets.halving import pruned_last
from seedbed.sets.resolve import ResolvedSet, Run, resolve
from seedbed.sets.runs import load_runs

# Far above the seeds that a set counts from its experiment's own.
FIRST_SEED = 1_000_001
# Where the release of a set on a cluster has `choice_text`.
CHOICE_FILE = "confirm.json"
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
    """
    if "environment.id" in wanted.sweep.axes:
        raise ConfigError(
            "--confirm takes the best two settings, and returns of different environments do not "
            "compare: confirm a set of one environment"
        )
    try:
        ranking = load_runs(folder).compare(list(wanted.sweep.axes))
    except ImportError as error:
        text = f"a ranking needs SciPy: {how_to_install('compare')}"
        raise SeedbedError(ExitCode.USAGE, text) from error
    ranked = [row["values"] for row in ranking["groups"] if row[ranking["ranked_by"]] is not None]
    ranked += pruned_last(folder) if ranked else []
    if len(ranked) < _SETTINGS:
        raise ConfigError(
            f"{folder} has {len(ranked)} settings with a result, and --confirm takes the best "
            f"{_SETTINGS}: train them first. {' '.join(ranking['notes'])}"
        )
    return _on_fresh_seeds(wanted, ranked[:_SETTINGS], seeds)


def choice_text(fresh: ResolvedSet) -> str:
    """Return what `confirmation` has chosen as a text, for a controller that ranks nothing."""
    settings = {repr(run.values): dict(run.values) for run in fresh.runs}
    seeds = len({run.seed for run in fresh.runs})
    return json.dumps({"settings": list(settings.values()), "seeds": seeds})


def read_choice(wanted: ResolvedSet, text: str) -> ResolvedSet:
    """Return the runs of a choice.

    Args:
        wanted: The set.
        text: Of `choice_text`.

    Raises:
        SeedbedError: CONFIG, the text is none of `choice_text`.
    """
    try:
        choice = json.loads(text)
        settings, seeds = [dict(one) for one in choice["settings"]], int(choice["seeds"])
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"what --confirm has chosen cannot be read: {error!r}") from error
    return _on_fresh_seeds(wanted, settings, seeds)


def _on_fresh_seeds(
    wanted: ResolvedSet, settings: Sequence[Mapping[str, Any]], seeds: int
) -> ResolvedSet:
    chosen = range(FIRST_SEED, FIRST_SEED + seeds)
    runs = [run for values in settings for run in _runs(wanted, values, chosen)]
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
