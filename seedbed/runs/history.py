"""history.json: each start of a run, with what made it and which settings it changed."""

import hashlib
import importlib.metadata
import json
import logging
import os
import platform
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from seedbed.runs.resume import Change
from seedbed.runtime.files import atomic_write
from seedbed.runtime.text import printable_texts
from seedbed.telemetry.status import ProvenanceStatus, plain

log = logging.getLogger(__name__)

HISTORY_FILE = "history.json"
_DAMAGED = ".damaged"
_MOST = 200  # starts that are kept: a pod may restart for weeks
_GIT_S = 5.0


class Accepted(TypedDict):
    """A change of a setting of the class `result`, which a person has accepted."""

    key: str
    before: Any
    after: Any


class Start(TypedDict):
    """One start of a run, as history.json holds it."""

    time: float  # seconds since 1970
    env_frames: int
    updates: int
    version: str
    commit: str  # empty where it is unknown
    clean: bool | None  # whether the checkout was as committed; None where that is unknown
    command: list[str]
    python: str
    machine: str
    named: list[str]  # settings that the file or the command has named
    changes: list[Accepted]
    digest: NotRequired[str]
    init_from: NotRequired[str]  # run, or file, with whose parameters the run has begun
    experiment: str  # `fingerprint` of experiment.yaml


class History(TypedDict):
    """The starts of a run, the first one first, and the packages of the newest one."""

    starts: list[Start]
    packages: dict[str, str]


def read_history(run: Path) -> History:
    """Read the history of a run; without starts where there is none, or a damaged one."""
    try:
        found = printable_texts(json.loads((run / HISTORY_FILE).read_text()))
        return {"starts": list(found["starts"]), "packages": dict(found["packages"])}
    except (OSError, ValueError, TypeError, KeyError):
        return {"starts": [], "packages": {}}


def append_start(
    run: Path,
    command: Sequence[str],
    named: Sequence[str],
    counters: Mapping[str, Any],
    changes: Sequence[Change],
    digest: str,
    experiment: str,
    init_from: str = "",
) -> None:
    """Add a start to the history of a run. A damaged history is set aside.

    Args:
        run: The run directory.
        command: Words of the command line.
        named: Paths of the settings that the file or the command has named.
        counters: Counters with which the run goes on; empty at its begin.
        changes: Changes of settings of the class `result` since the start before.
        digest: Name of these changes; empty without any.
        experiment: Text of experiment.yaml from this start on.
        init_from: Path of the run whose parameters the run has begun with.

    Raises:
        OSError: The file cannot be written.
    """
    history = read_history(run)
    file = run / HISTORY_FILE
    if not history["starts"] and file.exists():
        aside = file.with_name(f"{HISTORY_FILE}{_DAMAGED}")
        file.replace(aside)
        log.warning("%s cannot be read: it is now %s, and the history begins anew", file, aside)
    commit, clean = _commit()
    start: Start = {
        "time": time.time(),
        "env_frames": int(counters.get("env_frames", 0)),
        "updates": int(counters.get("updates", 0)),
        "version": importlib.metadata.version("seedbed"),
        "commit": commit,
        "clean": clean,
        "command": list(command),
        "python": platform.python_version(),
        "machine": f"{socket.gethostname()}, {platform.machine()}, {os.cpu_count()} CPUs",
        "named": sorted(named),
        "changes": [
            {"key": change.key, "before": plain(change.before), "after": plain(change.after)}
            for change in changes
        ],
        "experiment": fingerprint(experiment),
    }
    if init_from:
        start["init_from"] = init_from
    if changes:
        start["digest"] = digest
    starts = [*history["starts"], start]
    if len(starts) > _MOST:
        # The first one, all that have changed something, and the newest ones.
        kept = [i for i, each in enumerate(starts) if not i or each["changes"]]
        kept += range(len(starts) - _MOST // 2, len(starts))
        starts = [starts[i] for i in sorted(set(kept))]
    whole: History = {"starts": starts, "packages": _packages()}
    atomic_write(run / HISTORY_FILE, json.dumps(whole, indent=1) + "\n")


def fingerprint(experiment: str) -> str:
    """Return what tells one text of experiment.yaml from another."""
    return hashlib.sha256(experiment.encode()).hexdigest()[:16]


def provenance(run: Path) -> ProvenanceStatus | None:
    """Return what made a run and what was changed in it, for its status; None without a history."""
    starts = read_history(run)["starts"]
    if not starts:
        return None
    newest = starts[-1]
    return {
        "starts": len(starts),
        "version": newest["version"],
        "commit": newest["commit"],
        "clean": newest["clean"],
        "command": newest["command"],
        "python": newest["python"],
        "machine": newest["machine"],
        "changes": [
            f"{change['key']}: {change['before']!r} -> {change['after']!r} at frame "
            f"{start['env_frames']:,}"
            for start in starts
            for change in start["changes"]
        ],
    }


def _packages() -> dict[str, str]:
    """Return the versions of all installed packages by name."""
    found = importlib.metadata.distributions()
    return dict(sorted((each.name.lower(), each.version) for each in found if each.name))


def _commit() -> tuple[str, bool | None]:
    """Return the commit of a checkout or of a build, and whether it is as committed."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return os.environ.get("SEEDBED_COMMIT", ""), None
    try:
        commit = _git(root, "rev-parse", "HEAD").strip()
        return commit, not _git(root, "status", "--porcelain", "--untracked-files=no").strip()
    except (OSError, subprocess.SubprocessError):
        return "", None


def checkout_digest() -> str:
    """Return version, commit, and the digest of what a checkout of Seedbed has changed since."""
    commit, is_clean = _commit()
    name = f"{importlib.metadata.version('seedbed')} {commit[:10]}".strip()
    if is_clean is not False:
        return name
    try:
        changes = _git(Path(__file__).parents[2], "diff", "HEAD")
    except (OSError, subprocess.SubprocessError):
        return f"{name}, changed"
    return f"{name}, changed {hashlib.sha256(changes.encode()).hexdigest()[:8]}"


def _git(root: Path, *words: str) -> str:
    command = ["git", "-C", str(root), *words]
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=_GIT_S, env=environment
    ).stdout


def this_command(words: Sequence[str], call: str = "") -> list[str]:
    """Return what a person has typed: the command line of `seedbed`, or one call in Python.

    Args:
        words: Arguments of `seedbed`.
        call: Call of `seedbed.train`; empty where a person has typed the command.
    """
    return [call] if call else ["seedbed", *words]
