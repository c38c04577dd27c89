"""Print a table of the SEED paper, what its cost formula gives, and what was measured here.

Costs are US dollars of 1e9 environment frames, of the actors and of the learner. --actors,
--learner and --fps price other hardware without a run.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from seedbed.cli.table_ours import Measured, read_bench, read_run
from seedbed.cli.table_page import page
from seedbed.cli.table_prices import NEWEST, PAPER, PriceTags, unknown
from seedbed.cli.table_rows import (
    SETUPS,
    Pricing,
    our_row,
    paper_rows,
    repriced_rows,
    what_if_row,
)
from seedbed.papers.seed_tables import REMARKS, TABLES
from seedbed.runtime.exit_codes import ExitCode, SeedbedError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `table N`."""
    add = parser.add_argument
    add("table", metavar="N", help=f"number in the paper: {', '.join(map(str, TABLES))}")
    text = "a run of ours, to set beside the paper's rows (repeatable)"
    add("--run", metavar="RUN_DIR", nargs="+", type=Path, default=[], action="extend", help=text)
    text = "JSON of `seedbed bench system`, `baseline` or `accelerator` (repeatable)"
    add(
        "--bench", metavar="FILE.json", nargs="+", type=Path, default=[], action="extend", help=text
    )
    text = f"price table, or a YAML file in its form (default {PAPER}; for a what-if {NEWEST})"
    add("--prices", metavar="TABLE", help=text)
    text = "what if: price actors on this; any of a number of CPUs, a machine family and a tier"
    add("--actors", metavar="[N,][FAMILY,][spot]", help=text)
    text = "what if: price the learner on this; an accelerator such as l4, or a machine type"
    add("--learner", metavar="[Nx]NAME[,spot]", help=text)
    text = "what if: frames a second of yours instead of the paper's rows"
    add("--fps", metavar="FPS", type=float, help=text)
    add("--json", action="store_true", help="print JSON instead of the tables")


def run(args: argparse.Namespace) -> None:
    """Print the page, or JSON, to stdout.

    Raises:
        SeedbedError: USAGE, there is no such table, price, accelerator or benchmark;
            RUN_DIRECTORY, there is no such run.
    """
    table = _number(args.table)
    is_what_if = any(value is not None for value in (args.actors, args.learner, args.fps))
    tags = PriceTags(args.prices or (NEWEST if is_what_if else PAPER))
    pricing = Pricing(
        tags,
        None if args.actors is None else tags.actors(args.actors),
        None if args.learner is None else tags.learner(args.learner),
    )
    measured = [read_run(path) for path in args.run]
    measured += [one for path in args.bench for one in read_bench(path)]
    _check(table, args, pricing, bool(measured))
    result = {
        "table": table,
        "prices": {"name": tags.name, "date": tags.table.date},
        "paper": paper_rows(table, _beside(args.prices)),
        "remarks": list(REMARKS.get(table, ())),
        "what_if": _what_if(table, args.fps, pricing) if table in SETUPS else None,
        "ours": [our_row(one, pricing) for one in measured],
        "our_remarks": _our_remarks(table, measured, pricing),
    }
    print(json.dumps(result, indent=1, ensure_ascii=False) if args.json else page(result))


def _number(word: str) -> int:
    names = [str(number) for number in TABLES]
    if word not in names:
        raise unknown("table", word, names, "here, which has speeds, costs and latencies")
    return int(word)


def _check(table: int, args: argparse.Namespace, pricing: Pricing, has_ours: bool) -> None:
    """Refuse a what-if without a rate, hardware or cost to price."""
    words = [
        f"--{name}" for name in ("actors", "learner", "fps") if getattr(args, name) is not None
    ]
    if words and table not in SETUPS:
        tables = ", ".join(map(str, sorted(SETUPS)))
        raise SeedbedError(
            ExitCode.USAGE,
            f"table {table} has no cost of frames, so {words[0]} says nothing: take table {tables}",
        )
    if args.fps is not None and not 0 < args.fps < math.inf:
        text = f"--fps {args.fps:g}: frames a second are a number above 0"
        raise SeedbedError(ExitCode.USAGE, text)
    cpus = pricing.actors.cpus if pricing.actors else 0
    if args.fps is not None and not (cpus and pricing.learner):
        raise SeedbedError(
            ExitCode.USAGE,
            "--fps needs what runs at that speed: --actors with a number of CPUs, and --learner, "
            "as in --fps 20000 --actors 64,spot --learner l4",
        )
    if cpus and args.fps is None and not has_ours:
        raise SeedbedError(
            ExitCode.USAGE,
            f"--actors {args.actors}: the paper's rows have their own number of CPUs; leave "
            f"{cpus:g} out, or give your speed by --fps, --run or --bench",
        )


def _beside(name: str | None) -> list[PriceTags]:
    """Return the price tables that Table 3 is set beside: the one that is asked for, or all."""
    from seedbed.services.cost.price_table import tables

    return [PriceTags(one) for one in ([name] if name else reversed(tables()))]


def _what_if(table: int, fps: float | None, pricing: Pricing) -> dict[str, Any] | None:
    tags, actors, learner = pricing
    if tags.name == PAPER and not (actors or learner):
        return None
    text = f"prices {tags}; "
    text += f"actors: {actors}; " if actors else f"actors: {tags.default_family} on-demand; "
    text += f"learner: {learner}." if learner else "learner: the accelerators there."
    if fps is not None:
        return {"text": text, "rows": [what_if_row(fps, pricing)], "remarks": []}
    if actors and actors.cpus:
        return None
    remarks = ["even at: the frames a second from which a frame costs no more than by Table 3."]
    if learner:
        remarks.append(
            "The dollars of frames are at the speed of the accelerators there. Nothing here knows "
            "that of yours: `seedbed bench accelerator` measures it, and --fps takes it."
        )
    if absent := _absent(table, pricing):
        remarks.append(
            f"{tags.name} has no price of {', '.join(absent)}: Table 3's stands there; --learner "
            "NAME prices another one, such as --learner l4."
        )
    return {"text": text, "rows": repriced_rows(table, pricing), "remarks": remarks}


def _absent(table: int, pricing: Pricing) -> list[str]:
    names = dict.fromkeys(setup.accelerator for setup in SETUPS[table])
    if pricing.learner:
        return []
    return [name for name in names if pricing.tags.device_hour(name) is None]


def _our_remarks(table: int, measured: list[Measured], pricing: Pricing) -> list[str]:
    if table == 3:
        return ["What a release pays is by the same tables: docs/kubernetes.md, What it costs."]
    if not measured:
        return [
            "-: give --run RUN_DIR, or --bench FILE.json by `seedbed bench system --json FILE.json`"
        ]
    remarks = []
    if any(one.quick for one in measured):
        remarks.append("By bench --quick: no figures to quote.")
    if table == 13:
        remarks.append(
            "round trip: from an actor's sending of a step until its actions are there, over the "
            "last 4,096 steps of groups. An actor of IMPALA waits for its own network."
        )
        if any(one.round_trip_ms_p50 is None for one in measured):
            remarks.append("-: measured before Seedbed kept it; run or measure again.")
        return remarks
    remarks.append(
        f"By {pricing.tags}, a CPU with 3.75 GiB. Of a run the learner pays the CPUs that it used, "
        "the actors all others, idle ones too; a benchmark is split by the CPU time of its parts."
    )
    if pricing.actors or pricing.learner:
        remarks.append("The speed is the measured machine's: --actors and --learner only price it.")
    if any(one.metered_dollars is not None for one in measured):
        remarks.append(
            "A release's dollars are its meter's; seedbed_cost_dollars_per_billion_frames has the "
            "components."
        )
    if any(one.accelerators for one in measured) and not pricing.learner:
        remarks.append("-: which accelerators a run has is not in its files: give --learner NAME.")
    return remarks
