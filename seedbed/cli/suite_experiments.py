"""The experiments of a suite, from one: a game and a seed each."""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path

from seedbed.config import Experiment, load_experiment, parse_experiment
from seedbed.config.yaml_text import dump_yaml
from seedbed.evaluation.atari57 import scores
from seedbed.runtime.exit_codes import ConfigError, ExitCode, SeedbedError
from seedbed.runtime.files import atomic_write
from seedbed.runtime.formats import money, si_number

# Of the schema, because it is the longest name of a Helm release.
_NAME_LETTERS = 53
# Of one run each: below a folder that the experiment names, every run has its own.
_FOLDERS = ("learner.checkpoint.directory", "learner.replay.directory")


def games_of(words: str | None) -> list[str]:
    """Return games by their names in Table 10.

    Args:
        words: Names with commas between them, in any case, with or without underscores; None is
            all 57.

    Raises:
        SeedbedError: USAGE, a name is none of the 57.
    """
    if words is None:
        return list(scores())
    known = {_plain(name): name for name in scores()}
    found: dict[str, None] = {}
    for word in words.split(","):
        name = known.get(_plain(word))
        if name is None:
            near = [known[one] for one in get_close_matches(_plain(word), known, 3, 0.5)]
            meant = f"; did you mean {' or '.join(near)}?" if near else ": Table 10 has the names"
            text = f"--games: {word.strip()!r} is none of the 57 games{meant}"
            raise SeedbedError(ExitCode.USAGE, text)
        found[name] = None
    return list(found)


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]|^atari:", "", name.strip()).lower()


def suite_experiments(
    source: str, overrides: Sequence[str], games: Sequence[str], seeds: int
) -> list[Experiment]:
    """Return an experiment for each game and seed, which has the settings of one of an Atari game.

    Args:
        source: A YAML file, or the name of a shipped experiment.
        overrides: `a.b=value` each.
        games: Names of Table 10.
        seeds: Number of seeds, from the experiment's own on.

    Raises:
        SeedbedError: CONFIG, the experiment is wrong, plays no Atari game or never ends, or a name
            would be too long.
    """
    base = load_experiment(source, overrides)
    if not base.environment.id.startswith("atari:"):
        raise ConfigError(
            f"{source} plays {base.environment.id}, which is no Atari game: name an experiment "
            "with environment.id atari:GAME, such as atari-r2d2"
        )
    stop = base.stop
    ends = (stop.env_frames, stop.updates, stop.seconds, stop.dollars, stop.mean_return is not None)
    if not any(ends):
        raise ConfigError(
            f"{source} has no stop condition, so that the first game would never end: set "
            "stop.env_frames"
        )
    given = dump_yaml(_given(base))
    shared = {key: folder for key in _FOLDERS if (folder := attrgetter(key)(base))}
    found = []
    for game in games:
        for seed in range(base.seed, base.seed + seeds):
            name = f"{base.name}-{_dashed(game)}-{seed}"
            if len(name) > _NAME_LETTERS:
                raise ConfigError(
                    f"the name {name} has {len(name)} letters, and a release has at most "
                    f"{_NAME_LETTERS}: shorten the experiment's, --set name=..."
                )
            own = [f"name={name}", f"environment.id=atari:{game}", f"seed={seed}"]
            own += [f"{key}={folder.rstrip('/')}/{name}" for key, folder in shared.items()]
            found.append(parse_experiment(given, own, source))
    return found


def _dashed(game: str) -> str:
    """Return the name of a game as a part of a release's name: `ms-pacman`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", game).lower()


def _given(experiment: Experiment) -> dict[str, object]:
    """Return the keys that the file or an option has set, so that defaults stay defaults."""
    return experiment.model_dump(mode="json", exclude_unset=True)


def describe(experiments: Sequence[Experiment], billion_frames_dollars: float) -> str:
    """Return what the experiments take, in words.

    Args:
        experiments: Of one suite.
        billion_frames_dollars: US dollars of 1e9 frames.
    """
    games = len({experiment.environment.id for experiment in experiments})
    count = f"suite: {_several(len(experiments), 'experiment')}, {_several(games, 'game')}"
    each = experiments[0].stop.env_frames
    if not each:
        return f"{count}; without stop.env_frames nothing is known of their frames and dollars"
    frames = sum(experiment.stop.env_frames for experiment in experiments)
    price = billion_frames_dollars / 1e9
    return (
        f"{count}, {si_number(each)} frames each: {si_number(frames)} frames, "
        f"{money(frames * price)} ({money(each * price)} each) at {money(billion_frames_dollars)} "
        "for 1e9 frames, without evaluations; `seedbed table 11` has the paper's price, `seedbed "
        "status` a run's own"
    )


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" + "s" * (count != 1)


def write_suite(folder: Path, experiments: Sequence[Experiment], source: str) -> int:
    """Write a file for each experiment that is not there; return how many.

    Args:
        folder: Folder of the suite; made where it is missing.
        experiments: Of one suite.
        source: What they were made from, for the first line of each file.

    Raises:
        SeedbedError: CONFIG, a file is there with other settings, and then nothing is written, or
            a file cannot be written.
    """
    files = {folder / f"{one.name}.yaml": one for one in experiments}
    there = [file for file in files if file.exists()]
    if changed := [file for file in there if load_experiment(file) != files[file]]:
        names = ", ".join(str(file) for file in changed[:3])
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise ConfigError(
            f"{names}{more}: there with other settings; choose another --out, or delete the files"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, experiment in files.items():
            if file not in there:
                text = dump_yaml(_given(experiment))
                atomic_write(file, f"# By `seedbed suite prepare` from {source}.\n{text}")
    except OSError as error:
        raise ConfigError(f"cannot write the suite to {folder}: {error}") from error
    return len(files) - len(there)
