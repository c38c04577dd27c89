"""Settings that may change between two starts of one run, and settings that may not.

A run that resumes takes its parameters, optimizer state and counters from a checkpoint. A setting
that gives the stored arrays their shapes or their meaning cannot change; every other setting can.
"""

import reprlib
import sys
from operator import attrgetter
from typing import NamedTuple

import yaml
from pydantic import ValidationError

from seedbed.config import Experiment
from seedbed.config.keys import keys
from seedbed.config.renamed import translate
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.text import LONGEST, printable

# Shows a value of a file in bounded words, however deep it is.
SHOWN = reprlib.Repr()
SHOWN.maxlevel, SHOWN.maxstring, SHOWN.maxother = 2, LONGEST, LONGEST
_LINES = 20


class Change(NamedTuple):
    """One setting whose value differs.

    Attributes:
        key: Path of the setting.
        text: The path, the value of the stored experiment, and that of the new one.
        refusal: Why the change is refused; empty where it is allowed.
    """

    key: str
    text: str
    refusal: str


def compare(old: Experiment, new: Experiment) -> list[Change]:
    """List every setting that differs, in the order of the reference."""
    changes = []
    for key in keys():
        before, after = attrgetter(key.path)(old), attrgetter(key.path)(new)
        if before != after:
            refusal = key.resume if _matters(key.path, old, new) else ""
            changes.append(Change(key.path, f"{key.path}: {before!r} -> {after!r}", refusal))
    return changes


def _matters(key: str, old: Experiment, new: Experiment) -> bool:
    """Tell whether a fixed setting has an effect in these experiments."""
    if key.startswith("environment.atari."):
        return old.environment.id.startswith("atari:")
    if key.startswith("environment.football."):
        return old.environment.id.startswith("football:")
    if key.endswith(".dueling_units"):
        return key.startswith(f"{old.agent}.")
    if key == "learner.optimizer.momentum":
        before, after = old.learner.optimizer, new.learner.optimizer
        return before.name == "rmsprop" and (before.momentum == 0) != (after.momentum == 0)
    return True


def check_resume(old: Experiment, new: Experiment, source: str) -> None:
    """Report on stderr every setting that changed since a checkpoint; refuse what cannot change.

    Args:
        old: Experiment that the checkpoint stores.
        new: Experiment to go on with.
        source: Path of the checkpoint, for messages.

    Raises:
        SeedbedError: RESUME_REFUSED, naming every refused key with both values and the way out.
    """
    changes = compare(old, new)
    refused = [f"  {change.text} ({change.refusal})" for change in changes if change.refusal]
    if refused:
        raise SeedbedError(
            ExitCode.RESUME_REFUSED,
            f"{source} cannot be resumed with these settings changed:\n"
            + "\n".join(refused)
            + "\nset them back, or begin a new run: another --run-dir (with --init-from to start "
            "from these parameters where the shapes fit), or --restart fresh",
        )
    for change in changes:
        print(f"resume: {change.text} since {source}", file=sys.stderr)


def read_stored(text: str, source: str) -> Experiment:
    """Parse a stored experiment, perhaps of another version of Seedbed.

    A key that the text lacks has its default. A key that this version does not know is left out,
    and reported on stderr.

    Args:
        text: YAML of the experiment.
        source: Path that the text came from, for messages.

    Raises:
        SeedbedError: RUN_DIRECTORY: the text is not an experiment.
    """
    try:
        tree = yaml.safe_load(text)
        if isinstance(tree, dict):
            translate(tree)
        while True:
            try:
                return Experiment.model_validate(tree)
            except ValidationError as error:
                unknown = [i["loc"] for i in error.errors() if i["type"] == "extra_forbidden"]
                if not unknown:
                    raise
                for *parents, leaf in unknown:
                    node = tree
                    for part in parents:
                        node = node[part]
                    key = printable(".".join(map(str, [*parents, leaf])))
                    print(
                        f"resume: {key} = {SHOWN.repr(node.pop(leaf))} of {source} is unknown to "
                        "this version and left out",
                        file=sys.stderr,
                    )
    # YAML of any other kind fails in many ways.
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        RecursionError,
    ) as e:
        lines = "\n".join(map(printable, _lines(e)[:_LINES]))
        raise RunDirectoryError(
            f"the experiment stored in {source} cannot be read: {lines}\nchoose another --run-dir, "
            "or say --restart fresh"
        ) from e


def _lines(error: Exception) -> list[str]:
    """Return the lines of an error; pydantic's own text has values of any length."""
    if not isinstance(error, ValidationError):
        return str(error).splitlines()
    return [
        f"{'.'.join(map(str, item['loc']))}: {item['msg']}, given {SHOWN.repr(item['input'])}"
        for item in error.errors(include_url=False)
    ]
