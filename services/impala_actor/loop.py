"""Stream of a group that chooses its actions: fetches parameters, sends unrolls."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from seedbed.rpc.stream_factory import ActorStream
from seedbed.services.actor.step_loop import LearnerUnresponsive, StepLoop
from seedbed.spec import VectorEnv
from seedbed.v1 import inference_pb2 as wire

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.impala_actor.player import UnrollPlayer


class UnrollLoop(StepLoop):
    """Plays unrolls of environments, on one stream.

    Args:
        make_player: makes the player of the environments.
        arguments: as of `StepLoop`.
    """

    shares_memory = False  # unrolls and parameters are too large for a packet, and few

    def __init__(self, make_player: Callable[[VectorEnv], "UnrollPlayer"], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._make_player = make_player

    @override
    def _hello(self) -> wire.Hello:
        hello = super()._hello()
        hello.inference = wire.INFERENCE_LOCATION_ACTOR
        hello.unroll_length = self._group.unroll_length
        return hello

    @override
    def _play(self, stream: ActorStream) -> None:
        env = self._env
        player = self._make_player(env)
        player.begin()
        sequence = 0
        while True:
            requested = time.perf_counter()
            flat, version = self._parameters(stream, sequence)
            if self._why_leaving():
                return
            unroll = player.play(flat, version, time.perf_counter() - requested)
            stream.send(wire.ActorMessage(unroll=unroll))
            sequence = unroll.sequence + len(unroll.flags) // env.num_envs
            seconds = zip(
                memoryview(unroll.environment_seconds).cast("f"),
                memoryview(unroll.wait_seconds).cast("f"),
                strict=True,
            )
            for environment_s, wait_s in seconds:
                self._on_step(environment_s, wait_s)

    def _parameters(self, stream: ActorStream, sequence: int) -> tuple[bytes | None, int]:
        """Return the newest parameters, None where they are those that came last; their version."""
        parts: list[bytes] = []
        while True:
            part = self._reply(stream, "parameters", sequence)
            parts.append(part.values)
            if not part.more:
                break
        flat = b"".join(parts)
        if not flat and not sequence:
            raise LearnerUnresponsive("the learner sent no parameters")
        return flat or None, part.version
