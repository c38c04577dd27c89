"""Show the state of a run, where its time goes, what it costs and what it waits for.

Of a set, a folder or one on a cluster, it shows every run with its state, and of another folder of
runs what `seedbed list` does.
"""

import argparse
import json
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc

from seedbed.cli.arguments import add_credentials, add_namespace, credentials_of
from seedbed.cli.status_page import fitted, status_page
from seedbed.deploy.releases import has_cluster
from seedbed.deploy.set_releases import find_set, is_on_cluster
from seedbed.rpc import channels
from seedbed.rpc.credentials import PLAIN, Credentials
from seedbed.rpc.reconnect import details_of
from seedbed.runs.found import is_run
from seedbed.runs.layout import learner_directories
from seedbed.runtime.exit_codes import ExitCode, RunDirectoryError, SeedbedError
from seedbed.runtime.limits import process_start_ticks
from seedbed.runtime.text import printable_texts
from seedbed.runtime.tokens import Role
from seedbed.sets.folder import is_set
from seedbed.telemetry.status import STATUS_FILE, RunStatus, read_status
from seedbed.v1 import inference_pb2, inference_pb2_grpc

DEADLINE_S = 5.0
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `status RUN_DIR|SET|HOST:PORT|unix:PATH`."""
    parser.add_argument(
        "target",
        metavar="RUN_DIR|SET|HOST:PORT|unix:PATH",
        help="run directory, folder of runs, set on a cluster, or address of a running learner",
    )
    add_namespace(parser)
    add_credentials(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of the page")


def run(args: argparse.Namespace) -> int:
    """Print the page, or JSON, to stdout.

    Raises:
        SeedbedError: RUN_DIRECTORY without a status.json there; USAGE, the name is that of a folder
            and of a set; DEPLOY, there is no such set; others as `request_status`.
    """
    target = str(args.target)
    if ":" not in target and is_on_cluster(target, args.namespace):
        _show_set(target, args)
        return ExitCode.OK
    if is_set(Path(target)):
        from seedbed.cli.set_page import set_page, set_status

        found = set_status(Path(target))
        print(json.dumps(found, indent=1, ensure_ascii=False) if args.json else set_page(found))
        return ExitCode.OK
    if Path(target).is_dir() and not is_run(Path(target)) and not learner_directories(target):
        from seedbed.cli.list import print_runs

        print_runs(Path(target), args.json)
        return ExitCode.OK
    if learners := learner_directories(target):
        statuses = [read_file(directory) for directory in learners]
        shown: Any = {"learners": statuses}
        page = "\n\n".join(
            f"learner {rank} of {len(learners)}: {directory}\n{status_page(status)}"
            for rank, (directory, status) in enumerate(zip(learners, statuses, strict=True))
        )
    else:
        is_directory = Path(target).is_dir()
        shown = read_file(Path(target)) if is_directory else request_status(target, _caller(args))
        page = status_page(shown)
    if sys.stdout.isatty():
        page = fitted(page, shutil.get_terminal_size().columns)
    print(json.dumps(shown, indent=1, ensure_ascii=False) if args.json else page)
    return ExitCode.OK


def _show_set(name: str, args: argparse.Namespace) -> None:
    """Print the page of a set on a cluster, or JSON."""
    from seedbed.cli.cluster_set_page import set_page, set_status

    if args.namespace is None and not has_cluster():
        raise SeedbedError(
            ExitCode.USAGE,
            f"{name!r} is neither a directory that exists nor an address, and kubectl has no "
            "cluster with a set of that name: give a run directory, host:port or unix:PATH",
        )
    try:
        one = find_set(name, args.namespace or "default")
    except SeedbedError as error:
        if args.namespace is not None or error.code is not ExitCode.DEPLOY:
            raise
        raise RunDirectoryError(f"there is no folder {name} here, and {error}") from error
    found = set_status(one)
    print(json.dumps(found, indent=1, ensure_ascii=False) if args.json else set_page(found))


def read_file(run_dir: Path) -> RunStatus:
    """Read a run directory's status.json, and add `source`: its age, and whether the process runs.

    `alive` is None when the process is on another machine.

    Raises:
        SeedbedError: RUN_DIRECTORY, there is no status.json, or no readable one.
    """
    path = run_dir / STATUS_FILE
    try:
        status = read_status(run_dir)
    except FileNotFoundError as error:
        raise RunDirectoryError(
            f"{run_dir} has no {STATUS_FILE}: it is no run directory, or its learner has written "
            "none yet"
        ) from error
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"cannot read {path}: {error}") from error
    process = status["process"]
    alive = None
    if process["host"] == socket.gethostname() and process["start_ticks"] is not None:
        alive = process_start_ticks(process["pid"]) == process["start_ticks"]
    status["source"] = {
        "path": str(path),
        "age_s": max(0.0, time.time() - status["time"]),
        "alive": alive,
    }
    return status


def _caller(args: argparse.Namespace) -> Credentials:
    """Return credentials of the observer, or of the role whose secret the token file has."""
    found = credentials_of(args, Role.OBSERVER)
    if found.tokens is None:
        return found
    # In a pod of a learner or an actor, SEEDBED_TOKEN_FILE is that pod's own.
    roles = (Role.OBSERVER, Role.LEARNER, Role.ACTOR)
    return replace(found, role=next(filter(found.tokens.has_secret, roles), Role.OBSERVER))


def request_status(address: str, credentials: Credentials = PLAIN) -> RunStatus:
    """Request the status of the learner at `host:port` or `unix:PATH`, and add `source`.

    Raises:
        SeedbedError: USAGE, the address is none; LEARNER_UNREACHABLE, no answer in time;
            REFUSED_BY_LEARNER, the credential does not allow it.
    """
    host, colon, port = address.rpartition(":")
    if not address.startswith("unix:") and not (colon and host and port.isdigit()):
        raise SeedbedError(
            ExitCode.USAGE,
            f"{address!r} is neither a directory that exists nor an address: give a run directory, "
            "host:port or unix:PATH",
        )
    with channels.channel(address, credentials) as channel:
        stub = inference_pb2_grpc.InferenceStub(channel)
        try:
            reply = stub.GetStatus(
                inference_pb2.GetStatusRequest(),
                timeout=DEADLINE_S,
                metadata=credentials.metadata(),
            )
        except grpc.RpcError as error:
            details = details_of(error)
            if "HTTP/2" in details or "http2" in details.lower():
                details += " (is that the metrics port? the one for actors is wanted)"
            refused = error.code() in _REFUSED
            raise SeedbedError(
                ExitCode.REFUSED_BY_LEARNER if refused else ExitCode.LEARNER_UNREACHABLE,
                f"no status from {address} within {DEADLINE_S:g} s: {error.code().name}: {details}",
            ) from error
    status: RunStatus = printable_texts(json.loads(reply.json))
    status["source"] = {"address": address, "age_s": 0.0, "alive": True}
    return status
