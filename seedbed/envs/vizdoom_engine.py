"""The engine's process of a ViZDoom environment, started so that it leaves nothing behind.

Each environment has an engine: a child process that shares memory with it. The engine by itself
outlives a parent that is killed, makes a folder where it is started, and leaves its shared memory
(92 KiB, which the 64 MiB of a container's /dev/shm take 700 times).
"""

import shlex
import tempfile
import threading
from pathlib import Path
from typing import Any

_SHARED = Path("/dev/shm")
# Two threads that start engines at once, as two groups of an actor would, abort the process now and
# then: gRPC ends it where two threads fork at once, and a child inherits the other's launcher while
# that is still open for writing, which the kernel does not run then.
_ONE_AT_A_TIME = threading.Lock()
# The kernel ends the engine with the thread that started it. setpriv is a part of util-linux.
_LAUNCHER = """#!/bin/sh
cd {folder} || exit
printf '%s\\n' "$@" > arguments
command -v setpriv > /dev/null && exec setpriv --pdeathsig KILL {engine} "$@"
exec {engine} "$@"
"""


def start(game: Any, engine: str) -> None:
    """Start the engine of a game.

    Args:
        game: a `vizdoom.DoomGame` with all its settings.
        engine: path of the engine's program.

    Raises:
        vizdoom.ViZDoomErrorException: the engine does not start.
    """
    with _ONE_AT_A_TIME, tempfile.TemporaryDirectory(prefix="seedbed-vizdoom-") as name:
        folder = Path(name)
        launcher = folder / "launch"
        launcher.write_text(_LAUNCHER.format(folder=shlex.quote(name), engine=shlex.quote(engine)))
        launcher.chmod(0o700)
        game.set_vizdoom_path(str(launcher))
        # Its own settings, which it would write when it ends.
        game.set_doom_config_path("/dev/null")
        game.init()
        arguments = (folder / "arguments").read_text().split("\n")
    # Both processes have the memory now; without its names, it ends with them.
    instance = arguments[arguments.index("+viz_instance_id") + 1]
    for path in _SHARED.glob(f"ViZDoom*{instance}"):
        path.unlink(missing_ok=True)
