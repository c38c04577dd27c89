"""Groups of environments of a check: made as an actor makes them, and closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from seedbed.config.environment import Actor, Environment
from seedbed.envs.registry import make_vector_env
from seedbed.envs.seeds import environment_seed
from seedbed.spec import VectorEnv

_CLOSE_S = 1.0  # for `close` where another one has hung


class Groups:
    """Makes groups in this process. A `close` that hangs is left behind, as an actor leaves it.

    Args:
        environment: the experiment's section.
        actor: the experiment's section; with workers everything is called in the main thread.
        needs_lives: as of `make_vector_env`.

    Attributes:
        made: every group so far.
        kept: environments that are not closed; a `__del__` that hangs is left to the process's end.
    """

    def __init__(self, environment: Environment, actor: Actor, needs_lives: bool) -> None:
        self.environment, self.actor = environment, actor
        self.made: list[VectorEnv] = []
        self.kept: list[object] = []
        self._needs_lives = needs_lives
        self._is_closed = threading.Event()
        self._has_hung = False

    def make(
        self,
        num_envs: int,
        threads: int = 1,
        run_seed: int = 1,
        environment: Environment | None = None,
    ) -> VectorEnv:
        """Make a group.

        Args:
            num_envs: environments that step together.
            threads: threads that step them.
            run_seed: seed of the run.
            environment: another section; None: that of all groups.
        """
        group = make_vector_env(
            environment or self.environment,
            num_envs,
            threads,
            [environment_seed(run_seed, 0, 0, i) for i in range(num_envs)],
            self.actor.max_environment_failures,
            timeout_s=self.actor.environment_timeout_s,
            needs_lives=self._needs_lives,
        )
        self.made.append(group)
        return group

    @contextmanager
    def closing(self, group: VectorEnv) -> Iterator[VectorEnv]:
        """Close a group at the end of a block."""
        try:
            yield group
        finally:
            self.close(group)

    def close(self, group: VectorEnv) -> None:
        """Close a group; return once `leave` is called for a `close` that hangs."""
        if self.actor.workers:
            group.close()
            return
        failed: list[BaseException] = []

        def close() -> None:
            try:
                group.close()
            except BaseException as error:
                failed.append(error)
            self._is_closed.set()

        self._is_closed.clear()
        threading.Thread(target=close, name="close", daemon=True).start()
        self._is_closed.wait(_CLOSE_S if self._has_hung else None)
        if failed:
            raise failed[0]

    def leave(self) -> bool:
        """Leave a `close` that hangs behind; return whether it is the first one."""
        is_first, self._has_hung = not self._has_hung, True
        self._is_closed.set()
        return is_first
