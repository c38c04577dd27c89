"""Measure the actors, the wire, training end to end, memory, replay and gossip.

Every ratio compares two things that were measured in turn in this run. A table goes to stderr, one
JSON object to stdout. Run it on a machine that does nothing else: half an hour. `gossip`,
`baseline` and `stability` take up to an hour more each; they, `workers`, `growth`,
`peers` and `start` are measured only by their names.
"""

import argparse
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.accelerator import main as accelerator
from bench.accelerator.report import markdown as accelerator_markdown
from bench.actor import actor_efficiency
from bench.baseline import baseline
from bench.gossip.speed import gossip
from bench.gossip.stability import TASKS, stability
from bench.growth import growth
from bench.machine import command, machine_info, revision
from bench.memory import memory
from bench.peers import peers
from bench.plan import Plan, make_plan
from bench.replay.part import replay
from bench.report import markdown
from bench.start import start
from bench.system import system_efficiency
from bench.wire import wire_efficiency
from bench.workers import workers
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

PARTS: dict[str, Callable[[Plan], dict[str, Any]]] = {
    "actor": actor_efficiency,
    "wire": wire_efficiency,
    "system": system_efficiency,
    "memory": memory,
    "replay": replay,
    "gossip": gossip,
    "baseline": baseline,
    "stability": stability,
    "workers": workers,
    "growth": growth,
    "peers": peers,
    "start": start,
}
# 20 minutes, half an hour, an hour; `peers` takes ten minutes, and the others two each.
BY_NAME_ONLY = (
    "gossip", "baseline", "stability", "workers", "growth", "peers", "start",
)  # fmt: skip
# Of the plan.
SETTINGS = (
    "runs", "growth_s", "actor_threads", "gossip_seeds", "gossip_tasks", "baseline_widths",
    "cpu_watts", "peers",
)  # fmt: skip
KEYS = {"actor": "actor_efficiency", "wire": "wire_efficiency", "system": "system_efficiency"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser.add_argument(
        "parts", nargs="*", metavar="PART",
        help=f"what to measure: {', '.join(PARTS)} (default: all), or `accelerator` alone",
    )  # fmt: skip
    for part in ("replay", "gossip"):
        parser.add_argument(
            f"--{part}", action="append_const", dest="alone", const=part, default=[],
            help=f"the part `{part}` alone",
        )  # fmt: skip
    parser.add_argument(
        "--seeds", dest="gossip_seeds", type=int, metavar="N", help="of `stability` (default 10)"
    )
    parser.add_argument(
        "--tasks", dest="gossip_tasks", nargs="+", metavar="TASK", choices=list(TASKS),
        help="of `stability`",
    )  # fmt: skip
    parser.add_argument(
        "--cpu-watts", type=float, metavar="W",
        help="of `gossip`: power of a busy vCPU where the machine counts no energy (default 2.2)",
    )  # fmt: skip
    parser.add_argument(
        "--widths", dest="baseline_widths", nargs="+", type=int, choices=(1, 2, 4), metavar="N",
        help="of the network of `baseline` (default 1 2 4)",
    )  # fmt: skip
    parser.add_argument(
        "--peers", type=Path, metavar="FOLDER",
        help="of `peers`: where tools/peers/install.sh has installed them",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes instead")
    parser.add_argument("--runs", type=int, metavar="N", help="of each measurement (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="small and short: whether it works, not how fast"
    )
    parser.add_argument(
        "--growth-seconds", dest="growth_s", type=float, metavar="S",
        help="length of the run whose memory is watched (default 60)",
    )  # fmt: skip
    parser.add_argument(
        "--actor-threads", type=int, metavar="N",
        help="threads that step each of an actor's groups (default 2)",
    )  # fmt: skip
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE",
        help="measure nothing: print the JSON of an earlier benchmark as Markdown tables",
    )  # fmt: skip
    accelerator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, or render."""
    if args.markdown:
        results = _read(args.markdown)
        is_accelerator = results.get("kind") == "accelerator"
        print(accelerator_markdown(results) if is_accelerator else markdown(results))
        return 0
    if args.parts == ["accelerator"]:
        return accelerator.run(args)
    unknown = sorted(set(args.parts) - set(PARTS))
    if unknown:
        raise SeedbedError(
            ExitCode.USAGE, f"bench has no part {', '.join(unknown)}: one of {', '.join(PARTS)}"
        )
    if args.runs is not None and args.runs < 1:
        raise SeedbedError(ExitCode.USAGE, f"--runs {args.runs}: measure at least once")
    parts = args.parts + args.alone or [part for part in PARTS if part not in BY_NAME_ONLY]
    chosen = {name: value for name in SETTINGS if (value := getattr(args, name)) is not None}
    # Every way out goes through `with`, which ends the processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="seedbed-bench-") as folder:
        results = _measure(make_plan(Path(folder), args.quick, **chosen), parts, args.quick)
    print(markdown(results), file=sys.stderr)
    text = json.dumps(results, indent=1)
    if args.json:
        args.json.write_text(text + "\n")
    else:
        print(text)
    if "interrupted" in results["failed"].values():
        raise KeyboardInterrupt
    if results["failed"]:
        raise SeedbedError(
            ExitCode.INTERNAL, f"not measured: {', '.join(results['failed'])}; see the log above"
        )
    return 0


def _measure(plan: Plan, parts: list[str], is_quick: bool) -> dict[str, Any]:
    results: dict[str, Any] = {
        "command": command(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision(),
        "runs": plan.runs,
        "quick": is_quick,
        "machine": machine_info(plan.gemm_size),
        "seconds": {},
        "failed": {},
    }
    for part in parts:
        log.info("%s", part)
        started = time.monotonic()
        try:
            results[KEYS.get(part, part)] = PARTS[part](plan)
        except SeedbedError as error:  # minutes of measuring must not go with it
            log.error("%s was not measured: %s", part, error)
            results["failed"][part] = str(error)
        except KeyboardInterrupt:  # nor with a Ctrl-C
            log.error("%s was interrupted: what was measured before it is kept", part)
            results["failed"] |= dict.fromkeys(parts[parts.index(part) :], "interrupted")
            break
        results["seconds"][part] = round(time.monotonic() - started, 1)
    if "system_efficiency" in results:
        results["env_fps"] = {
            case["network"]: case["env_fps"] for case in results["system_efficiency"]["cases"]
        }
    return results


def _read(path: Path) -> dict[str, Any]:
    try:
        results: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SeedbedError(ExitCode.USAGE, f"cannot read {path}: {error}") from error
    return results
