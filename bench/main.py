"""Measure the actors, the wire, training end to end, memory, replay and gossip.

Every ratio compares two things that were measured in turn in this run. A table goes to stderr, one
JSON object to stdout. Run it on a machine that does nothing else: half an hour. `gossip`
and `baseline` take 20 and 40 minutes more; they, `workers`, `growth`, `peers` and `start`
are measured only by their names.
"""

import argparse
import json
import logging
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import bench.actor
import bench.baseline
import bench.gossip.speed
import bench.growth
import bench.memory
import bench.peers
import bench.replay.part
import bench.start
import bench.system
import bench.wire
import bench.workers
from bench.accelerator import main as accelerator
from bench.accelerator.report import markdown as accelerator_markdown
from bench.machine import command, machine_info, revision
from bench.plan import Plan, check_parts
from bench.report import Table, blocks, heading
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)


class Part(NamedTuple):
    """A part of the benchmark.

    Attributes:
        measure: From the plan to the results, JSON.
        tables: Of the results.
        key: Name of the results; "" is the part's.
        by_name: Measured only where it is named.
    """

    measure: Callable[[Plan], dict[str, Any]]
    tables: Sequence[Table]
    key: str = ""
    by_name: bool = True


# Of those by name `gossip` takes 20 minutes, `baseline` 40 minutes, `peers` ten minutes, and
# each of the others two.
PARTS = {
    "actor": Part(bench.actor.actor_efficiency, bench.actor.TABLES, "actor_efficiency", False),
    "wire": Part(bench.wire.wire_efficiency, bench.wire.TABLES, "wire_efficiency", False),
    "system": Part(bench.system.system_efficiency, bench.system.TABLES, "system_efficiency", False),
    "memory": Part(bench.memory.memory, bench.memory.TABLES, by_name=False),
    "replay": Part(bench.replay.part.replay, bench.replay.part.TABLES, by_name=False),
    "gossip": Part(bench.gossip.speed.gossip, bench.gossip.speed.TABLES),
    "baseline": Part(bench.baseline.baseline, bench.baseline.TABLES),
    "workers": Part(bench.workers.workers, bench.workers.TABLES),
    "growth": Part(bench.growth.growth, bench.growth.TABLES),
    "peers": Part(bench.peers.peers, bench.peers.TABLES),
    "start": Part(bench.start.start, bench.start.TABLES),
}
# Options of the parts.
OPTIONS = ("runs", "cpu_watts", "peers", "backend", "model")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser.add_argument(
        "parts", nargs="*", metavar="PART",
        help=f"what to measure: {', '.join(PARTS)} (default: all), or `accelerator` [PART ...]",
    )  # fmt: skip
    parser.add_argument(
        "--cpu-watts", type=float, metavar="W",
        help="of `gossip`: power of a busy vCPU where the machine counts no energy (default 2.2)",
    )  # fmt: skip
    parser.add_argument(
        "--peers", type=Path, metavar="FOLDER",
        help="of `peers`: where tools/peers/install.sh has installed them (default peers)",
    )  # fmt: skip
    parser.add_argument(
        "--model", choices=bench.baseline.WIDTHS.values(),
        help="of `baseline`: the network of this width alone (default: each)",
    )  # fmt: skip
    parser.add_argument(
        "--backend", choices=("tensorflow", "jax"),
        help="of the learner (default: tensorflow; of `accelerator`: jax if there)",
    )  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the JSON goes instead")
    parser.add_argument("--runs", type=int, metavar="N", help="of each measurement (default 3)")
    parser.add_argument(
        "--quick", action="store_true", help="small and short: whether it works, not how fast"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE",
        help="measure nothing: print the JSON of an earlier benchmark as Markdown tables",
    )  # fmt: skip
    accelerator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Measure, or render."""
    if args.markdown:
        print(markdown(_read(args.markdown)))
        return 0
    if args.parts[:1] == ["accelerator"]:
        return accelerator.run(args)
    check_parts(args.parts, list(PARTS), "bench")
    if args.runs is not None and args.runs < 1:
        raise SeedbedError(ExitCode.USAGE, f"--runs {args.runs}: measure at least once")
    parts = args.parts or [name for name, part in PARTS.items() if not part.by_name]
    options = {name: getattr(args, name) for name in OPTIONS}
    # Every way out goes through `with`, which ends the processes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="seedbed-bench-") as folder:
        results = _measure(Plan(Path(folder), args.quick, **options), parts, args.quick)
    print(markdown(results), file=sys.stderr)
    # A series on one line.
    text = re.sub(
        r"\{[^{}]+\}", lambda found: " ".join(found[0].split()), json.dumps(results, indent=1)
    )
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


def markdown(results: dict[str, Any]) -> str:
    """Return everything that was measured, medians with (least to greatest)."""
    if results.get("kind") == "accelerator":
        return accelerator_markdown(results)
    texts = [heading(results)]
    for name, part in PARTS.items():
        if found := results.get(part.key or name):
            texts += blocks(part.tables, found)
    return "\n\n".join(texts)


def _measure(plan: Plan, parts: list[str], is_quick: bool) -> dict[str, Any]:
    results: dict[str, Any] = {
        "command": command(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "revision": revision(),
        "runs": plan.runs,
        "quick": is_quick,
        "machine": machine_info(plan.pick(2048, 256)),
        "seconds": {},
        "failed": {},
    }
    for part in parts:
        log.info("%s", part)
        started = time.monotonic()
        try:
            results[PARTS[part].key or part] = PARTS[part].measure(plan)
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
