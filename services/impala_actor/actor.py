"""Actor process with a copy of the network: its groups, which choose their actions themselves."""

import os
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from typing_extensions import override

from seedbed import backends
from seedbed.launch.operation_threads import operation_threads
from seedbed.services.actor.actor import Actor
from seedbed.services.actor.loop import ActorLoop
from seedbed.services.impala_actor.loop import UnrollLoop
from seedbed.spec import VectorEnv

if TYPE_CHECKING:  # imports Keras
    from seedbed.services.impala_actor.player import NetworkCopy, UnrollPlayer

# An actor of IMPALA has one CPU (SEED, section 3): libraries take all by default, in every process.
_ONE_THREAD = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


class ImpalaActor(Actor):
    """Groups of one actor process, which share its copy of the network.

    Args: as of `Actor`.
    """

    _network: "NetworkCopy | None" = None
    _building = threading.Lock()  # a process has one actor

    @override
    def loops(self) -> Sequence[ActorLoop]:
        for name, value in _ONE_THREAD.items():
            os.environ.setdefault(name, value)
        self._env_frames = None  # players begin their episodes
        loops = []
        for group in range(self.experiment.actor.groups):
            loop = self.loop(group)
            loop.make_step_loop = partial(UnrollLoop, partial(self.player, group))
            loops.append(loop)
        return loops

    def player(self, group: int, env: VectorEnv) -> "UnrollPlayer":
        """Return the player of a group; the first one builds the network.

        Args:
            group: number of the group, from 0.
            env: its environments.

        Raises:
            SeedbedError: BACKEND: it is not installed. CONFIG: as `NetworkCopy.build`.
        """
        learner = self.experiment.learner
        with self._building:
            backend = backends.use(
                learner.backend, device="cpu", precision=learner.precision,
                operation_threads=operation_threads(self.experiment, actors_here=True),
            )  # fmt: skip
            # This imports Keras, so after its backend is fixed.
            from seedbed.services.impala_actor.player import NetworkCopy, UnrollPlayer

            if self._network is None:
                self._network = NetworkCopy.build(self.experiment, env.spec, backend)
            seed = (self.experiment.seed, self.index, group)
            return UnrollPlayer(self._network, env, self.experiment, seed)
