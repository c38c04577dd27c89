"""What another value of a setting means for a run that resumes, by the class of the setting.

A run that resumes takes its parameters, optimizer state and counters from a checkpoint. A setting
of `identity` cannot change. A change of a setting of `result` is accepted by its digest, which
names this one difference. Every other setting is free. The chart compares in the same way before
it replaces a learner (`helm/seedbed/templates/_validate-change.tpl`), and names the same digest.
"""

import hashlib
import json
import reprlib
import sys
from collections.abc import Collection, Iterable
from decimal import Decimal
from operator import attrgetter
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ValidationError

from seedbed.config import Experiment
from seedbed.config.environment import FAMILIES
from seedbed.config.keys import agent_sections, is_section, keys
from seedbed.config.yaml_text import load_yaml
from seedbed.runs.ways_on import WaysOn
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.text import LONGEST, printable
from seedbed.settings import FREE, RESULT, KeyClass

# Shows a value of a file in bounded words, however deep it is.
SHOWN = reprlib.Repr()
SHOWN.maxlevel, SHOWN.maxstring, SHOWN.maxother = 2, LONGEST, LONGEST
_LINES = 20
# Its default is what is installed, which can change below a run.
_BACKEND = "learner.backend"
# A letter, so that YAML and `helm --set` never read a digest as a number, and hexadecimal digits.
_DIGEST = ("c", 7)
_NO_COMMAND = WaysOn()


class Change(NamedTuple):
    """One setting whose value differs.

    Attributes:
        key: Path of the setting.
        before: Value of the stored experiment.
        after: Value of the new one.
        key_class: Class of the setting in these experiments.
    """

    key: str
    before: Any
    after: Any
    key_class: KeyClass

    @property
    def text(self) -> str:
        """The path and both values; of a mapping those entries that differ."""
        if not isinstance(self.before, dict) or not isinstance(self.after, dict):
            return f"{self.key}: {self.before!r} -> {self.after!r}"
        return ", ".join(
            f"{self.key}.{name}: {_entry(self.before, name)} -> {_entry(self.after, name)}"
            for name in sorted({*self.before, *self.after})
            if _entry(self.before, name) != _entry(self.after, name)
        )

    @property
    def refusal(self) -> str:
        """Why the change is refused for good; empty where it can be accepted or is free."""
        return self.key_class.reason


def _entry(mapping: dict[str, Any], name: str) -> str:
    return repr(mapping[name]) if name in mapping else "none"


def _differ(one: Any, other: Any) -> bool:
    """Return whether values differ: in free settings 1, 1.0 and true are three."""
    if isinstance(one, dict | list) and isinstance(other, dict | list):
        return json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True)
    return bool(one != other)


def compare(old: Experiment, new: Experiment) -> list[Change]:
    """List every setting that differs, in the order of the reference."""
    changes = []
    for key in keys():
        before, after = attrgetter(key.path)(old), attrgetter(key.path)(new)
        if _differ(before, after):
            key_class = _class(key.path, key.key_class, old, new)
            changes.append(Change(key.path, before, after, key_class))
    return changes


def _class(key: str, declared: KeyClass, old: Experiment, new: Experiment) -> KeyClass:
    """Return the class of a setting that differs: FREE where nothing reads the setting."""
    first, _, rest = key.partition(".")
    if first in agent_sections() and first != old.agent:
        return FREE
    if first == "environment" and rest.partition(".")[0] in FAMILIES:
        return declared if rest.startswith(f"{old.environment.family}.") else FREE
    if key == "learner.optimizer.momentum":
        before, after = old.learner.optimizer, new.learner.optimizer
        if before.name == "adam":
            return FREE
        return declared if (before.momentum == 0) != (after.momentum == 0) else RESULT
    return declared


def result_changes(changes: Iterable[Change]) -> list[Change]:
    """Return the changes that a person must accept."""
    return [change for change in changes if change.key_class is RESULT]


def digest(changes: Iterable[Change]) -> str:
    """Return the name of one difference: of its keys, and of both values of each."""
    lines = sorted(canonical([change.key, change.before, change.after]) for change in changes)
    letter, digits = _DIGEST
    return letter + hashlib.sha256("\n".join(lines).encode()).hexdigest()[:digits]


def canonical(value: Any) -> str:
    """Return a value of a setting as `toRawJson` of Helm writes it.

    Args:
        value: Plain data, or a section.

    Returns:
        JSON without spaces, with sorted keys. Every number is a float64, as in Helm's YAML.
    """
    if isinstance(value, BaseModel):
        return canonical(value.model_dump(mode="json"))
    if isinstance(value, dict):
        items = (f"{canonical(str(key))}:{canonical(value[key])}" for key in sorted(value))
        return f"{{{','.join(items)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(map(canonical, value))}]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(float(value))
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("\u2028", r"\u2028").replace("\u2029", r"\u2029")


def _number(value: float) -> str:
    """Return the shortest text of a finite float, in the form of Go's `encoding/json`."""
    exact = Decimal(repr(value))
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        text = format(exact, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    exponent = exact.adjusted()
    mantissa = format(exact.scaleb(-exponent).normalize(), "f")
    return f"{mantissa}e{exponent}" if exponent < 0 else f"{mantissa}e+{exponent}"


def keep_recorded(
    old: Experiment,
    new: Experiment,
    named_now: Collection[str],
    named_before: Collection[str] | None,
    source: str,
) -> Experiment:
    """Keep recorded values of settings that nobody names, where the defaults are others now.

    A free setting takes the new default, but for the backend.

    Args:
        old: Experiment that the run records.
        new: Experiment of today's command.
        named_now: Paths that today's file and command name.
        named_before: Paths that the recorded file and command named; None where unknown.
        source: Path of the record, for messages.

    Returns:
        `new` with the recorded value of each setting that neither names.
    """
    kept: dict[str, Any] = {}
    for change in compare(old, new):
        unnamed = change.key not in named_now and change.key not in (named_before or ())
        if unnamed and (change.key_class is not FREE or change.key == _BACKEND):
            kept[change.key] = change.before
            print(
                f"resume: {change.key} stays {change.before!r}, as {source} records it: the "
                f"default is {change.after!r} now, and no one has named the key",
                file=sys.stderr,
            )
    for key, value in kept.items():
        new = with_value(new, key, value)
    return new


def with_value(experiment: Experiment, key: str, value: Any) -> Experiment:
    """Return an experiment with another value of a setting, which is not checked."""
    *parents, leaf = key.split(".")
    path: list[BaseModel] = [experiment]
    for name in parents:
        path.append(getattr(path[-1], name))
    updated = path.pop().model_copy(update={leaf: value})
    for name, parent in zip(reversed(parents), reversed(path), strict=True):
        updated = parent.model_copy(update={name: updated})
    assert isinstance(updated, Experiment)
    return updated


def named(section: BaseModel, path: str = "") -> set[str]:
    """Return the paths of the settings that a file or a command has named."""
    found: set[str] = set()
    for name in section.model_fields_set:
        value, here = getattr(section, name), f"{path}.{name}".lstrip(".")
        field = type(section).model_fields[name]
        if is_section(field.annotation) and isinstance(value, BaseModel):
            found |= named(value, here)
        else:
            found.add(here)
    return found


def named_by(overrides: Iterable[str]) -> set[str]:
    """Return the paths of the settings that overrides name, each `a.b=c`, or of a whole section."""
    paths = [override.partition("=")[0] for override in overrides]
    return {key.path for key in keys() if any(f"{key.path}.".startswith(f"{a}.") for a in paths)}


def check_resume(
    old: Experiment,
    new: Experiment,
    source: str,
    accepted: str = "",
    ways: WaysOn = _NO_COMMAND,
) -> list[Change]:
    """List every setting that changed since a start; refuse what is not accepted.

    Args:
        old: Experiment that the run records.
        new: Experiment to resume with.
        source: Path of the record, for messages.
        accepted: Digest of the one difference that the person accepts; `*` accepts each.
        ways: Ways on, which the refusal prints.

    Returns:
        The changes.

    Raises:
        SeedbedError: RESUME_REFUSED, naming every refused key with both values and the ways on.
    """
    changes = check_identity(old, new, source, ways)
    measured = result_changes(changes)
    name = digest(measured)
    if measured and accepted not in (name, "*"):
        other = f"{ways.option} {accepted} names another difference: " if accepted else ""
        back = ", ".join(f"{change.key}={change.before!r}" for change in measured)
        lines = [
            f"{other}{source} is of a run with other settings, and what it measures would change "
            "in its middle:",
            *(f"  {change.text}" for change in measured),
            "three ways on:",
            *ways.from_result(f"set back: {back}", name),
        ]
        raise SeedbedError(ExitCode.RESUME_REFUSED, "\n".join(lines))
    return changes


def check_identity(
    old: Experiment, new: Experiment, source: str, ways: WaysOn = _NO_COMMAND
) -> list[Change]:
    """Refuse changes of settings with which a run cannot resume. As `check_resume`.

    Returns:
        All changes.

    Raises:
        SeedbedError: RESUME_REFUSED, naming every refused key with both values and the way out.
    """
    changes = compare(old, new)
    if refused := [f"  {change.text} ({change.refusal})" for change in changes if change.refusal]:
        first = f"{source} cannot be resumed with these settings changed:"
        lines = [first, *refused, *ways.from_identity()]
        raise SeedbedError(ExitCode.RESUME_REFUSED, "\n".join(lines))
    return changes


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
        tree = load_yaml(text)
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
