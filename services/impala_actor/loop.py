"""Loop of a group that chooses its actions: fetches parameters, sends unrolls."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from seedbed.rpc.streams import write
from seedbed.services.actor.loop import ActorLoop, LearnerUnresponsive, make_hello
from seedbed.spec import VectorEnv
from seedbed.v1 import inference_pb2 as wire

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.impala_actor.player import UnrollPlayer


class UnrollLoop(ActorLoop):
    """Plays unrolls of a vector environment, stream after stream, until the experiment is over.

    Attributes:
        make_player: makes the player of the environments, in the group's own thread.
    """

    # Unrolls and parameters are too large for a packet, and few.
    steps_in_thread = False

    make_player: Callable[[VectorEnv], "UnrollPlayer"]

    @override
    async def _begin_env(self) -> VectorEnv:
        return await self._make_env()  # a player begins its episodes

    @override
    def _hello(self, env: VectorEnv) -> wire.Hello:
        hello = make_hello(env, self._name)
        hello.inference = wire.INFERENCE_LOCATION_ACTOR
        hello.unroll_length = self.unroll_length
        return hello

    @override
    async def _step(self, env: VectorEnv, call: Any, reply_timeout_s: float) -> None:
        player = await self._in_thread(self.make_player, env)
        player.begin()
        sequence = 0
        while True:
            asked = time.perf_counter()
            flat, version = await self._read_parameters(call, sequence, reply_timeout_s)
            if self._is_leaving:
                return
            waited_s = time.perf_counter() - asked
            unroll = await self._in_thread(player.play, flat, version, waited_s)
            await write(call, wire.ActorMessage(unroll=unroll))
            sequence = unroll.sequence + len(unroll.flags) // env.num_envs
            seconds = zip(
                memoryview(unroll.environment_seconds).cast("f"),
                memoryview(unroll.wait_seconds).cast("f"),
                strict=True,
            )
            for environment_s, wait_s in seconds:
                self._metrics.on_step(env.num_envs, environment_s, wait_s)
            self._on_steps(env)

    async def _read_parameters(
        self, call: Any, sequence: int, timeout_s: float
    ) -> tuple[bytes | None, int]:
        """Return the newest parameters, None where they are those that came last; their version."""
        parts: list[bytes] = []
        while True:
            part = await self._read_reply(call, "parameters", sequence, timeout_s)
            parts.append(part.values)
            if not part.more:
                break
        flat = b"".join(parts)
        if not flat and not sequence:
            raise LearnerUnresponsive("the learner sent no parameters")
        return flat or None, part.version
