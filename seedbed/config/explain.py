"""Words for what is wrong with an experiment: the key, its place, and what is allowed."""

import json
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from seedbed.config.keys import agent_sections, keys, sections
from seedbed.config.schema import NAME_LETTERS, Experiment

_MOST_NAMES = 12
_NAME = (
    f"must have 1 to {NAME_LETTERS} lower-case letters, digits and hyphens, with no hyphen at "
    "either end, because pods are named after it"
)


DEFAULT_AGENT: str = Experiment.model_fields["agent"].default
# Usual short names of settings.
ABBREVIATIONS = {
    "lr": "learner.optimizer.learning_rate",
    "gamma": "AGENT.discount",
    "bs": "learner.batch_size",
    "env": "environment.id",
    "env_id": "environment.id",
    "num_envs": "actor.envs_per_group",
    "total_timesteps": "stop.env_frames",
    "total_steps": "stop.env_frames",
    "frames": "stop.env_frames",
    "steps": "stop.env_frames",
    "hidden_size": "learner.network_options",
    "ent_coef": "AGENT.entropy_cost",
    "entropy_coef": "AGENT.entropy_cost",
    "vf_coef": "AGENT.baseline_cost",
    "max_grad_norm": "learner.optimizer.max_gradient_norm",
    "n_steps": "learner.unroll_length",
    "num_steps": "learner.unroll_length",
    "rollout_length": "learner.unroll_length",
    "lstm": "learner.lstm_units",
}


def settings_named(word: str, agent: str = DEFAULT_AGENT) -> list[str]:
    """Return the settings that a word may mean: by their leaf's name, or by a usual short one.

    Args:
        word: such as `lr`, `learning-rate`, `optimizer.lr` or `batch_size`.
        agent: the experiment's agent.
    """
    whole = word.lstrip("-").replace("-", "_")
    *_, name = whole.split(".")
    usual = ABBREVIATIONS.get(name, "").replace("AGENT", agent)
    known = [key.path for key in keys() if _is_read(key.path, agent)]
    if usual in known:
        return [usual]
    ends = [path for path in known if f".{path}".endswith(f".{whole}")]
    ends = ends or [path for path in known if _leaf(path) == name]
    ends = ends or [path for path, _ in sections() if _leaf(path) == name]
    leaves = {_leaf(path): path for path in known}
    begins = [path for leaf, path in leaves.items() if leaf.startswith(f"{name}_")]
    return ends or [leaves[near] for near in get_close_matches(name, leaves, 1, 0.8)] or begins[:2]


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _is_read(path: str, agent: str) -> bool:
    """Return whether a setting is no option of another agent."""
    first = path.partition(".")[0]
    return first not in agent_sections() or first == agent


def explain(
    item: dict[str, Any],
    source: str,
    overrides: Sequence[str],
    agent: str = DEFAULT_AGENT,
    option: str = "--set",
) -> str:
    """Return the line that explains one error of the schema.

    Args:
        item: as Pydantic lists it.
        source: name of the file.
        overrides: the `a.b=value` of `option`.
        agent: the experiment's agent.
        option: what has the overrides.
    """
    parts = [str(part) for part in item["loc"]]
    # Without the alternatives of a union, which Pydantic names between the keys.
    path = ".".join(part for part in parts if "[" not in part and not part[:1].isupper())
    # Of a free mapping the message begins with the entry.
    entry = str(item["msg"]).removeprefix("Value error, ")
    own = [one for one in overrides if _may_be_of(one.partition("=")[0], path, entry)]
    return f"{_place(path, source, own, option)}{_words(path, item, agent)}"


def _may_be_of(key: str, path: str, entry: str) -> bool:
    """Return whether an override may have made an error at a path, in an entry of a mapping."""
    is_whole = not key.startswith(f"{path}.") or path in dict(sections())
    return is_whole or entry.startswith(key.removeprefix(f"{path}.").partition(".")[0])


def _place(path: str, source: str, overrides: Sequence[str], option: str) -> str:
    """Return what names the key: the override that has it, or else the file and the path."""
    for setting in reversed(overrides):
        key = setting.partition("=")[0]
        if path and (key == path or key.startswith(f"{path}.") or path.startswith(f"{key}.")):
            return f"{option} {setting}: " + (f"{path}: " if key != path else "")
    return f"{source}: {path}: " if path else f"{source}: "


def _words(path: str, item: dict[str, Any], agent: str) -> str:
    kind, given, allowed = item["type"], item.get("input"), item.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown key (given {_shown(given)}){_meant(path, agent)}"
    if kind == "missing":
        return "missing, and it has no default"
    bounds = {
        "greater_than_equal": ("at least", "ge"),
        "greater_than": ("more than", "gt"),
        "less_than_equal": ("at most", "le"),
        "less_than": ("below", "lt"),
    }
    if kind in bounds:
        words, limit = bounds[kind]
        text = f"must be {words} {allowed[limit]:g}"
    elif kind == "string_pattern_mismatch" and path == "name":
        text = _NAME
    elif kind == "literal_error":
        text = f"must be {allowed['expected']}{_near(given, allowed['expected'])}"
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        children = _children(path)
        text = f"is a section{children}" if children else "must be a mapping of keys to values"
        text += ", or the word auto" * (path == "learner.devices")
    elif kind.startswith(("int_", "is_instance")):
        text = "must be an integer"
    elif kind.startswith("float_"):
        text = "must be a number"
    elif kind == "finite_number":
        text = "must be a finite number"
    elif kind.startswith("bool_"):
        text = "must be true or false"
    elif kind == "string_type":
        text = "must be a text"
    elif kind in ("list_type", "tuple_type"):
        text = "must be a list"
    else:
        text = str(item["msg"]).removeprefix("Value error, ")
        if isinstance(given, dict):  # a rule of a whole section
            return text
    also = ""
    if text in ("must be an integer", "must be a number") and _are_several(given):
        also = ": a run has one value; `seedbed sweep` trains a run for each"
    return f"{text}, given {_shown(given)}{also}"


def _are_several(given: Any) -> bool:
    """Return whether a value looks like several values to try, such as `1,2,3`."""
    parts = given.strip("[]").split(",") if isinstance(given, str) else given
    return isinstance(parts, list) and len(parts) > 1


def _shown(given: Any) -> str:
    text = json.dumps(given, default=str, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _meant(path: str, agent: str) -> str:
    """Return which known keys are near an unknown one."""
    section, _, leaf = path.rpartition(".")
    here = [name for name, _ in _names(section)]
    found = settings_named(leaf, agent)
    near = [f"{section}.{name}".lstrip(".") for name in get_close_matches(leaf, here, 3, 0.7)]
    if not near or leaf in ABBREVIATIONS or any(leaf == _leaf(each) for each in found):
        # The right name in the wrong place.
        near = found or near or get_close_matches(path, [key.path for key in keys()], 2, 0.85)
    if near:
        return f": did you mean {' or '.join(near)}?"
    return _children(section).replace(" with", f": {section or 'an experiment'} has", 1)


def _children(path: str) -> str:
    names = [name for name, _ in _names(path)]
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f" with the keys {', '.join(names[:_MOST_NAMES])}{more}" if names else ""


def _names(path: str) -> list[tuple[str, Any]]:
    found = dict(sections()).get(path)
    return list(found.model_fields.items()) if found is not None else []


def _near(given: Any, expected: str) -> str:
    known = [word.strip(" ',") for word in expected.replace(" or ", ",").split(",")]
    near = get_close_matches(str(given), known, 1, 0.5)
    return f" (did you mean {near[0]}?)" if near else ""
