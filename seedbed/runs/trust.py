"""Experiments that files store: data, unless the person says that the file is trusted.

A checkpoint or a run directory may come from elsewhere, so what it names is built only if it is
one of ours or is registered with Gymnasium. `module:attribute` would import and call anything.
"""

import re
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from seedbed.checkpoints.format import Checkpoint
from seedbed.config import Experiment
from seedbed.runs.resume import SHOWN, read_stored
from seedbed.runtime.exit_codes import ConfigError

# Settings that may be `module:attribute`. Gymnasium imports the module of `module:Name-v0`, too.
NAMES = ("agent", "environment.id", "learner.network", "logging.scalars")
# Arguments of what is named. Numbers and words are harmless to what is registered; a path, a name
# of a module, or a mapping, which Keras may turn into an object, need not be.
# DeepMind Lab's own may be commands of its console, and folders of levels, which are programs.
_PROGRAMS = "environment.lab.config"
OPTIONS = ("agent_options", "environment.kwargs", _PROGRAMS, "learner.network_options")
_WORDS = re.compile(r"[\w -]*")


def stored_experiment(checkpoint: Checkpoint, trust: bool) -> Experiment:
    """Return the experiment of a checkpoint, to build what it names.

    Args:
        checkpoint: The checkpoint.
        trust: The checkpoint is the person's own: it may name `module:attribute`.

    Raises:
        SeedbedError: CONFIG, it names code and is not trusted; RUN_DIRECTORY, it is no experiment.
    """
    experiment = read_stored(str(checkpoint.meta["experiment"]), checkpoint.path)
    if not trust and (found := list(foreign(experiment))):
        raise ConfigError(
            f"{checkpoint.path} names what is neither ours nor registered with Gymnasium, and may "
            f"run any code: {'; '.join(found)}. If you trust this file, say --trust (in Python "
            "trust=True)"
        )
    return experiment


def foreign(experiment: Experiment) -> Iterator[str]:
    """Yield the settings, with their values, that only a trusted file may have."""
    for key, name in named_code(experiment):
        yield f"{key} {SHOWN.repr(name)}"
    for key in OPTIONS:
        for option, value in attrgetter(key)(experiment).items():
            if key == _PROGRAMS or not _is_plain(value):
                yield f"{key} {SHOWN.repr(option)}: {SHOWN.repr(value)}"


def named_code(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """Yield the settings that name `module:attribute`, and what they name."""
    for key in NAMES:
        name = attrgetter(key)(experiment)
        if ":" in name and not (key == "environment.id" and experiment.environment.family):
            yield key, name


def _is_plain(value: Any) -> bool:
    """Tell whether a value is a number, words, nothing, or a list of these."""
    if isinstance(value, list | tuple):
        return not any(isinstance(item, list | tuple) or not _is_plain(item) for item in value)
    if isinstance(value, str):
        return _WORDS.fullmatch(value) is not None
    return value is None or isinstance(value, bool | int | float)
