"""Ask a learner for one action, connected with one environment as an actor is.

The action takes the whole way through gRPC, batcher and model, where the first one may compile.
Prints one JSON object on stdout.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc

from seedbed.cli.arguments import add_credentials, add_experiment, credentials_of
from seedbed.cli.output import emit
from seedbed.config import load_experiment
from seedbed.envs import make_vector_env
from seedbed.rpc import channels
from seedbed.rpc.hello import hello_metadata
from seedbed.rpc.step_codec import Actions, act, kind_of
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.runtime.text import printable
from seedbed.runtime.tokens import Role
from seedbed.spec import ActionSpec
from seedbed.v1 import inference_pb2 as wire

SEED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `check learner EXPERIMENT`."""
    add_experiment(parser)
    add = parser.add_argument
    add("--learner", required=True, metavar="ADDRESS", help="host:port or unix:PATH")
    text = "longest wait in seconds, for a learner that is starting too (default %(default)g)"
    add("--timeout-s", type=float, default=5.0, metavar="S", help=text)
    text = "folder with the keys of a release's state as files: nothing is asked at zero replicas"
    add("--state", type=Path, metavar="DIR", help=text)
    add_credentials(parser)


def run(args: argparse.Namespace) -> None:
    """Ask once; not at all if the release has finished or is paused, which is then printed.

    Raises:
        SeedbedError: LEARNER_UNREACHABLE, with the status of gRPC; REFUSED_BY_LEARNER, if the
            answer is no action of the environment.
    """
    from seedbed.rpc.reconnect import FATAL, describe
    from seedbed.services.actor.messages import make_hello, make_step

    if args.state and (held := _held(args.state)):
        key, reason = held
        how = {"finished": "has finished", "paused": "is paused"}[key]
        print(
            f"check: the release {how} ({reason}): its learner is at zero replicas and answers "
            "nothing",
            file=sys.stderr,
        )
        emit(json.dumps({"action": None, key: reason}))
        return
    experiment = load_experiment(args.experiment, args.set)
    limit_s = experiment.actor.environment_timeout_s
    env = make_vector_env(experiment.environment, 1, 1, [SEED], timeout_s=limit_s)
    started = time.perf_counter()
    try:
        credentials = credentials_of(args, Role.ACTOR)
        hello = make_hello(env, "seedbed check learner")
        with channels.channel(args.learner, credentials) as channel:
            channel.subscribe(_print_once(args.learner, args.timeout_s), try_to_connect=True)
            call = act(channel)(
                iter([make_step(env.reset(), 0)]),
                metadata=hello_metadata(hello, credentials),
                timeout=args.timeout_s,
                wait_for_ready=True,
            )
            answers: list[Any] = list(_without_notices(call))
    except grpc.RpcError as error:
        received = describe(error)
        if error.code() in FATAL:
            raise SeedbedError(
                ExitCode.REFUSED_BY_LEARNER, f"the learner at {args.learner} refused: {received}"
            ) from error
        raise SeedbedError(
            ExitCode.LEARNER_UNREACHABLE,
            f"no action from {args.learner} within {args.timeout_s:g} s: {received}"
            + ("" if args.tls else " (a learner with mTLS requires --tls)"),
        ) from error
    finally:
        env.close()
    seconds = round(time.perf_counter() - started, 3)
    action = over = None
    if answers and kind_of(answers[0]) == "finished":
        over = printable(answers[0].finished.reason)
        text = f"the experiment is over: {over}"
    else:
        action = _action(answers, env.spec.action, args.learner)
        text = f"action {action} after {seconds:g} s, the connection included"
    print(f"check: {text}", file=sys.stderr)
    emit(json.dumps({"action": action, "over": over, "seconds": seconds}))


def _held(state: Path) -> tuple[str, str] | None:
    """Return the key of the state that holds the release at zero, and its reason."""
    for key in ("finished", "paused"):
        file = state / key
        if file.exists() and (reason := printable(file.read_text())):
            return key, reason
    return None


def _print_once(learner: str, timeout_s: float) -> Callable[[grpc.ChannelConnectivity], None]:
    """Return a callback that prints one line at the first connection that fails."""
    printed = False

    def on_state(state: grpc.ChannelConnectivity) -> None:
        nonlocal printed
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not printed:
            printed = True
            print(
                f"check: nobody answers at {learner}: waiting for up to {timeout_s:g} s",
                file=sys.stderr,
                flush=True,
            )

    return on_state


def _without_notices(
    messages: Iterable[Actions | wire.LearnerMessage],
) -> Iterator[Actions | wire.LearnerMessage]:
    """Yield the messages but for the notices, which are printed, less often the longer it takes."""
    due_s = 0.0
    for message in messages:
        if isinstance(message, Actions) or kind_of(message) != "notice":
            yield message
        elif message.notice.waited_seconds >= due_s:
            due_s = 2 * message.notice.waited_seconds
            late, reason = message.notice.waited_seconds, printable(message.notice.reason)
            print(f"check: waiting for {late:.0f} s: {reason}", file=sys.stderr, flush=True)


def _action(answers: list[Actions | wire.LearnerMessage], space: ActionSpec, learner: str) -> Any:
    kinds = [kind_of(message) for message in answers]
    if kinds == ["welcome", "actions"] and isinstance(answers[1], Actions):
        size = len(answers[1].action)
        if size == space.array.row_bytes:
            chosen = space.read(answers[1].action, 1)
            if (wrong := space.wrong(chosen)) is None:
                return chosen[0].tolist()
            received = wrong
        else:
            received = f"{size} bytes for {space}"
    else:
        received = ", ".join(str(kind) for kind in kinds) or "nothing"
    raise SeedbedError(
        ExitCode.REFUSED_BY_LEARNER, f"{learner} answered with {received} instead of one action"
    )
