"""Paths of a run: directories of learners, checkpoints, the unix socket."""

import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from seedbed.config import Experiment
from seedbed.config.yaml_text import load_yaml
from seedbed.rpc.local.addresses import SUFFIX
from seedbed.runtime.exit_codes import RunDirectoryError
from seedbed.runtime.files import TEMPORARY

# Folder of the keys of the learners' ranks, which only their user enters.
RANK_KEYS = "rank-keys"
# Names of files that serve one process or are made again; docs/run-directory.md has every file.
PASSING = (
    "seedbed.lock.[0-9]*", "*.sock", "*.sock.shm", "xla-cache", f"{TEMPORARY}*", "*.aside",
    RANK_KEYS,
)  # fmt: skip
_SOCKET_PATH_BYTES = 107  # sun_path has 108, the last is NUL (unix(7))
_ESCAPE = re.compile("%[0-9a-fA-F]{2}")


def checkpoint_directory(path: str | Path, experiment: Experiment) -> str:
    """Return the fsspec path of the checkpoints of the run at `path`."""
    return experiment.learner.checkpoint.directory or str(Path(path) / "checkpoints")


def learner_directory(path: str | Path, rank: int) -> Path:
    """Return the run directory of one learner.

    Args:
        path: Run directory of all learners.
        rank: Number of the learner, from 0.
    """
    return Path(path) / f"learner-{rank}"


def host_directory(path: str | Path, host: int) -> Path:
    """Return the run directory of one host of a learner: the run's own is host 0's.

    Args:
        path: Run directory of the learner.
        host: Number of the host, from 0.
    """
    return Path(path) / f"host-{host}" if host else Path(path)


def learner_directories(path: str | Path, earlier: bool = False) -> list[Path]:
    """List the run directories of all learners, by rank; none where the run has one learner.

    Args:
        path: Run directory of all learners.
        earlier: List also those that an earlier start with more learners left behind.
    """
    if "://" in str(path):
        return []
    ranks = {child.name.removeprefix("learner-"): child for child in Path(path).glob("learner-*")}
    found = {int(rank): ranks[rank] for rank in ranks if rank.isdigit() and ranks[rank].is_dir()}
    count = _count(Path(path)) if found else None  # of one learner, nothing is read
    return [found[rank] for rank in sorted(found) if earlier or count is None or rank < count]


def run_of_part(path: Path) -> Path | None:
    """Return the run of which `path` is the directory of one learner or host; None for others."""
    path = path.resolve()
    is_part = re.fullmatch(r"(learner|host)-\d+", path.name) is not None
    return path.parent if is_part and (path.parent / "experiment.yaml").is_file() else None


def has_shared_copy(path: Path) -> bool:
    """Return whether learner 0 of the run at `path` holds the parameters of all (hogwild)."""
    return bool(_gossip(path).get("topology") == "hogwild")


def _count(path: Path) -> int | None:
    """Read `gossip.replicas` of the run at `path`; None where it is not stored."""
    try:
        return int(_gossip(path)["replicas"])
    except (KeyError, TypeError, ValueError):
        return None


def _gossip(path: Path) -> dict[str, Any]:
    """Read the section `gossip` of the run at `path`; empty where it is not stored."""
    try:
        return dict(load_yaml((path / "experiment.yaml").read_text())["gossip"])
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        return {}


def socket_path(path: Path) -> Path:
    """Return the path of a run's unix socket.

    It is `path/learner.sock`. Where that is too long, or has `%` and two hexadecimal digits, which
    gRPC reads as a byte, it is in the temporary directory, in a folder that only this user enters.

    Raises:
        SeedbedError: RUN_DIRECTORY: the other path cannot be used either, or is open to other
            users.
    """
    own = path / "learner.sock"
    if len(os.fsencode(own)) + len(SUFFIX) <= _SOCKET_PATH_BYTES and not _ESCAPE.search(str(own)):
        return own
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    short = Path(tempfile.gettempdir()) / f"seedbed-{os.getuid()}-{digest}"
    size = len(os.fsencode(short / "learner.sock")) + len(SUFFIX)
    if size > _SOCKET_PATH_BYTES:
        raise RunDirectoryError(
            f"a unix socket's path has at most {_SOCKET_PATH_BYTES} bytes: {own}{SUFFIX} has "
            f"{len(os.fsencode(own)) + len(SUFFIX)}, and that in {short} has {size}: choose a "
            "shorter --run-dir"
        )
    if _ESCAPE.search(str(short)):
        raise RunDirectoryError(
            f"gRPC reads % and two hexadecimal digits in {short} as a byte: set TMPDIR to a folder "
            "without them"
        )
    short.mkdir(mode=0o700, exist_ok=True)
    status = short.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077 or short.is_symlink():
        raise RunDirectoryError(
            f"{short} is open to other users (owner {status.st_uid}, mode "
            f"{status.st_mode & 0o777:o}): delete it, or choose a shorter --run-dir"
        )
    return short / "learner.sock"
