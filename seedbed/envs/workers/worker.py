"""Worker process: steps some environments of a group.

`python -m seedbed.envs.workers.worker` with the arguments of `WorkerProcess`. The process imports
neither gRPC nor a model library. It ends with the thread that started it, and when its socket ends.
"""

import json
import os
import signal
import socket
import struct
import sys
from contextlib import closing, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from seedbed.runtime.exit_codes import SeedbedError
from seedbed.runtime.guard import leaving, run_guarded
from seedbed.runtime.signals import end_with
from seedbed.runtime.terminal import log_to_stderr

if TYPE_CHECKING:  # imports NumPy
    from seedbed.envs.sequential import SequentialVectorEnv

# A command: which one, and the incarnation of a reset.
COMMAND = struct.Struct("<cq")
RESET, STEP, RESTART = b"R", b"S", b"B"
# The answer to a command without failures. Other messages are JSON.
DONE = b"D"
# Below what a socket takes by default.
LONGEST_TEXT = 8000


def main() -> int:
    """Make the environments, and obey commands until the socket ends."""
    arguments: dict[str, Any] = json.loads(sys.argv[1])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave_to_parent)
    sys.path[:] = arguments["path"]  # where the parent finds the environments of a user
    log_to_stderr()
    # Processes that an environment starts hold none of the descriptors.
    for descriptor in (arguments["socket"], arguments["memory"]):
        os.set_inheritable(descriptor, False)
    channel = socket.socket(fileno=arguments["socket"])
    try:
        _serve(channel, arguments)
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent has closed its end
    except SeedbedError as error:
        with suppress(BrokenPipeError):  # the parent has its error from another worker
            _send(channel, {"error": str(error)[:LONGEST_TEXT], "code": int(error.code)})
    except ImportError as error:
        with suppress(BrokenPipeError):
            _send(channel, {"missing": str(error)[:LONGEST_TEXT]})
    sys.stdout.flush()
    sys.stderr.flush()
    leaving()
    # Threads of an environment keep no actor waiting.
    os._exit(0)


def _serve(channel: socket.socket, arguments: dict[str, Any]) -> None:
    # Imported here, because the parent is to end this process from its first line on.
    from seedbed.config.environment import Environment
    from seedbed.envs.registry import make_sequential_env
    from seedbed.runtime.calls import map_records

    record = map_records(arguments["memory"], arguments["workers"])[arguments["worker"]]
    first, seeds = arguments["first"], arguments["seeds"]
    environment = Environment.model_validate_json(arguments["environment"])
    env = make_sequential_env(
        environment,
        seeds,
        arguments["max_failures"],
        timeout_s=None,
        record=record,
        first=first,
        needs_lives=arguments["needs_lives"],
    )
    with closing(env):
        _obey(channel, arguments, env)


def _obey(channel: socket.socket, arguments: dict[str, Any], env: "SequentialVectorEnv") -> None:
    from seedbed.envs.workers.block import Block

    first = arguments["first"]
    rows = slice(first, first + env.num_envs)
    block = Block(arguments["memory"], env.spec, arguments["num_envs"], arguments["workers"])
    _send(channel, {"spec": env.spec.to_json()})
    reported = env.failures.copy()
    while command := channel.recv(COMMAND.size):
        kind, env.incarnation = COMMAND.unpack(command)
        if kind == RESET:
            time_step = env.reset()
        elif kind == STEP:
            time_step = env.step(block.action[rows])
        else:
            env.restart(time_step, block.chosen[rows])
        block.write(rows, time_step)
        if env.failures == reported:
            channel.send(DONE)
        else:
            new, reported = env.failures - reported, env.failures.copy()
            _send(channel, {"failures": new, "last": env.last_failure[:LONGEST_TEXT]})


def _send(channel: socket.socket, message: dict[str, Any]) -> None:
    channel.send(json.dumps(message).encode())


def _leave_to_parent(_: int, __: FrameType | None) -> None:
    """Do nothing: the parent ends the worker when its own step is over."""


if __name__ == "__main__":
    end_with(json.loads(sys.argv[1])["parent"])
    run_guarded(main)
