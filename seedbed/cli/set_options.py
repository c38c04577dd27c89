"""Options of what a set of runs tries, for a set on a machine and for one on a cluster."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seedbed.cli.arguments import positive
from seedbed.sets.budget import check_budget
from seedbed.sets.resolve import ResolvedSet, resolve
from seedbed.sets.sweep import Budget, Sweep, read_sweep

SET_OPTIONS = (
    *("seeds", "draws", "name", "halving", "confirm"),
    *(f"budget_{name}" for name in Budget.model_fields),
)


def add_set_options(parser: argparse._ActionsContainer) -> None:
    """Add `SET_OPTIONS`."""
    add = parser.add_argument
    text = "seeds of each setting, counted from the experiment's own, or a list such as 1,7,9"
    add("--seeds", type=_seeds, metavar="N", help=text)
    add("--draws", type=positive, metavar="N", help="draws from the ranges")
    add("--name", help="name of the set (default: the experiment's)")
    for name in Budget.model_fields:
        text = f"bound of all runs together, in {name}; 0 lifts that of the file"
        add(f"--budget-{name}", type=float, metavar=name[0].upper(), help=text)
    text = "rank the settings by all their seeds after so many frames, and go on with the best "
    text += "third; again at three times the frames, and so on, up to stop.env_frames"
    add("--halving", type=int, metavar="FRAMES", help=text)
    text = "train the best two settings of the set on N fresh seeds, which alone support a claim"
    add("--confirm", type=positive, metavar="N", help=text)


def read_set(args: argparse.Namespace, source: str | Path, settings: Sequence[str]) -> Sweep:
    """Return the sweep of a file and options.

    Args:
        args: Of a parser with `add_set_options`.
        source: A sweep's file, or an experiment.
        settings: `a.b=value` or `a.b=value,value` each, as `read_sweep` takes them.

    Raises:
        SeedbedError: CONFIG, as `read_sweep`.
    """
    options: dict[str, Any] = {}
    if args.seeds is not None:
        options["seeds"] = args.seeds
    if args.draws is not None:
        options["draws"] = {"number": args.draws}
    if args.name is not None:
        options["name"] = args.name
    if args.halving is not None:
        options["halving"] = {"first": args.halving}
    bounds = {name: getattr(args, f"budget_{name}") for name in Budget.model_fields}
    if given := {name: value for name, value in bounds.items() if value is not None}:
        options["budget"] = given
    return read_sweep(source, settings, options)


def resolve_set(sweep: Sweep, source: str) -> ResolvedSet:
    """Return the runs of a sweep, whose bound they fit.

    Args:
        sweep: The sweep.
        source: Its name in errors.

    Raises:
        SeedbedError: CONFIG, as `resolve` and `check_budget`.
    """
    wanted = resolve(sweep, source)
    check_budget(wanted.sweep.budget, wanted.runs)
    return wanted


def _seeds(text: str) -> int | list[int]:
    return [int(word) for word in text.split(",")] if "," in text else positive(text)
