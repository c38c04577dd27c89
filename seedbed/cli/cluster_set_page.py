"""A set on a cluster with its runs and their states, as `seedbed status NAME` prints it."""

import json
from collections import Counter
from typing import Any

import yaml

from seedbed.deploy.rows import row_of_set, rows_of_runs
from seedbed.deploy.set_releases import ClusterSet
from seedbed.deploy.set_standing import sentences, standing
from seedbed.runtime.formats import (
    columns,
    duration,
    money,
    percent,
    si_number,
    significant,
)
from seedbed.runtime.text import counted

_HEAD = (
    "run",
    "state",
    "frames",
    "done",
    "evaluation",
    "to go",
    "cost",
    "failures",
    "preempted",
    "reason",
)
_IN_WORDS = {"dollars": money, "frames": si_number, "hours": "{:g} hours".format}


def set_status(one: ClusterSet) -> dict[str, Any]:
    """Return the state of every run of a set, and of the whole."""
    state, given = one.state, one.given
    whole = row_of_set(one)
    rows = rows_of_runs(one)
    budget = (yaml.safe_load(given.get("sweep.yaml", "{}")) or {}).get("budget") or {}
    return {
        "set": f"{one.namespace}/{one.name}",
        "budget": {name: bound for name, bound in budget.items() if bound},
        "limits": {
            name: most for name, most in json.loads(given.get("limits.json", "{}")).items() if most
        },
        **standing(one),
        "is_silent": one.is_silent(),
        "runs": rows,
        "states": dict(Counter(row["state"] for row in rows)),
        "failures": sum(row["failures"] for row in rows),
        "preemptions": sum(row["preemptions"] for row in rows),
        "env_frames": whole["env_frames"],
        "dollars": whole["dollars"],
        "dollars_per_hour": float(state["dollarsPerHour"]) if "dollarsPerHour" in state else None,
        "seconds_left": whole["seconds_left"],
    }


def set_page(status: dict[str, Any]) -> str:
    """Return the page of a result of `set_status`."""
    rows = [_HEAD, *map(_cells, status["runs"])]
    states = ", ".join(f"{count} {state}" for state, count in status["states"].items())
    total = [
        f"{counted(len(status['runs']), 'run')}: {states or 'its controller has not begun'}",
        f"{si_number(status['env_frames'])} frames",
        money(status["dollars"]),
    ]
    if status["dollars_per_hour"] is not None:
        total.append(f"{money(status['dollars_per_hour'])} an hour")
    if status["seconds_left"] is not None:
        total.append(f"{duration(status['seconds_left'])} to go")
    lines = ["; ".join(total)]
    own, taken = status["failures"], status["preemptions"]
    if own or taken:
        lines.append(
            f"lost: {counted(own, 'failure')} of their own, and {counted(taken, 'pod')} that a "
            "drain, an eviction or the loss of a node has taken, after which they resume"
        )
    bounds = [_IN_WORDS[name](bound) for name, bound in status["budget"].items()]
    limits = [counted(most, name.removesuffix("s")) for name, most in status["limits"].items()]
    lines.append(f"bound: {', '.join(bounds) or 'none'}; at once: {', '.join(limits) or 'all'}")
    lines += sentences(status)
    return f"{columns(rows, '<<>>>>>>><')}\n\n" + "\n".join(lines)


def _cells(of: dict[str, Any]) -> tuple[str, ...]:
    return (
        of["run"], of["state"], si_number(of["env_frames"]), percent(of["done"]),
        significant(of["evaluation_mean"]), duration(of["seconds_left"]),
        money(of["dollars"]), str(of["failures"]), str(of["preemptions"]), of["reason"] or "",
    )  # fmt: skip
