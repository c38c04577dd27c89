"""Texts that the hosts of a learner share, by the service of `jax.distributed`."""

from typing import Any

import jax
from jax._src import distributed  # the client of the texts is nowhere else
from typing_extensions import override

from seedbed.backends.coordination import Coordination, HostPlace
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

# Silence after which a host counts as lost, in seconds. JAX's own limit is 100.
_HEARTBEAT_S = 20
# Longest wait for all hosts at the start, in seconds: a node may have to load its image first.
_MEET_S = 600


class JaxCoordination(Coordination):
    """The coordination service of `jax.distributed`, which runs in the first host.

    It ends this process with SIGABRT when it hears no more of a host; Python cannot prevent that.
    """

    def __init__(self, place: HostPlace) -> None:
        self.host, self.hosts, address = place
        # It would take SIGTERM for itself.
        jax.config.update("jax_enable_preemption_service", False)  # type: ignore[no-untyped-call]
        is_local = address.startswith(("127.", "localhost:"))
        jax.distributed.initialize(
            address,
            self.hosts,
            self.host,
            cluster_detection_method="deactivate",
            initialization_timeout=_MEET_S,
            heartbeat_timeout_seconds=_HEARTBEAT_S,
            coordinator_bind_address=address if is_local else None,
        )
        self._client: Any = distributed.global_state.client

    @override
    def put(self, key: str, text: str) -> None:
        self._client.key_value_set(key, text, allow_overwrite=True)

    @override
    def wait(self, key: str, timeout_s: float) -> str | None:
        try:
            return str(self._client.blocking_key_value_get(key, round(1000 * timeout_s)))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None

    @override
    def texts(self, folder: str) -> dict[str, str]:
        found = self._client.key_value_dir_get(f"{folder}/")
        return {key.removeprefix(f"{folder}/"): text for key, text in found}

    @override
    def delete(self, folder: str) -> None:
        self._client.key_value_delete(f"{folder}/")

    @override
    def barrier(self, name: str, timeout_s: float) -> None:
        try:
            self._client.wait_at_barrier(name, round(1000 * timeout_s))
        except jax.errors.JaxRuntimeError as error:
            raise SeedbedError(
                ExitCode.HOSTS_FAILED,
                f"not all {self.hosts} hosts ended within {timeout_s:g} s: "
                f"{str(error).splitlines()[0]}",
            ) from error

    @override
    def close(self) -> None:
        state: Any = distributed.global_state
        state.shutdown()
