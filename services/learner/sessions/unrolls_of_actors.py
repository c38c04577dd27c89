"""Unrolls whose actions the actor chose: one message is judged, and written through a session."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seedbed.numbers import InvalidNumbers, check_magnitudes
from seedbed.rpc.step_codec import Step
from seedbed.services.learner.sessions.rejections import InvalidStep
from seedbed.services.learner.sessions.session import Session
from seedbed.services.learner.unrolls.queue import CompletedUnroll
from seedbed.services.learner.unrolls.unroll import UnrollSpec
from seedbed.spec import ArraySpec, EnvironmentSpec
from seedbed.v1 import inference_pb2 as wire

# Largest magnitude of a logit and of a number of the recurrent state.
_LARGEST = 1e6


class UnrollReader:
    """Writes the unrolls of one stream, step by step, through its session.

    So each step is judged, counted and stacked as if it had come alone, and an unroll is the same
    array for array wherever its actions were chosen.

    Args:
        session: the session, new.
        spec: sizes of a step of one environment.
        unroll: sizes of an unroll.
    """

    def __init__(self, session: Session, spec: EnvironmentSpec, unroll: UnrollSpec) -> None:
        self._session, self._action_space, self._unroll = session, spec.action, unroll
        self._observation_bytes = session.num_envs * spec.observation.row_bytes

    def read(self, message: wire.Unroll, newest: int) -> CompletedUnroll:
        """Judge and write one message.

        Args:
            message: T steps, or T + 1 in the first message of the stream.
            newest: newest version of the parameters.

        Returns:
            The unroll that the message completes.

        Raises:
            InvalidStep: the message does not fit. Steps before the wrong one are written.
        """
        unroll, session, e = self._unroll, self._session, self._session.num_envs
        is_first = session.sequence == 0
        length = unroll.unroll_length
        steps = length + is_first
        if message.version > newest:
            raise InvalidStep(
                "version", f"at most {newest}", message.version, "act with what the learner sent"
            )
        for field, size in (
            ("observation", self._observation_bytes),
            ("reward", 4 * e),
            ("flags", e),
            ("environment_seconds", 4),
            ("wait_seconds", 4),
        ):
            _check_size(message, field, steps * size)
        action = self._action(message, length)
        behaviour = self._behaviour(message, length)
        state_spec = ArraySpec((unroll.state_size,), "float32")
        state = self._numbers("state", message.state, (e,), state_spec)
        environment_s = np.frombuffer(message.environment_seconds, np.float32).tolist()
        wait_s = np.frombuffer(message.wait_seconds, np.float32).tolist()
        observation = memoryview(message.observation)
        completed: CompletedUnroll | None = None
        for i in range(steps):
            t = i - is_first  # of the action that led to step i
            if t >= 0:
                chosen = {name: values[t] for name, values in behaviour.items()}
                session.set_outputs(action[t], chosen, message.version, state)
            at = i * self._observation_bytes
            completed = session.receive(
                Step(
                    message.sequence + i,
                    observation[at : at + self._observation_bytes],
                    message.reward[4 * e * i : 4 * e * (i + 1)],
                    message.flags[e * i : e * (i + 1)],
                    environment_s[i],
                    wait_s[i],
                )
            )
        assert completed is not None, "T steps after another T complete an unroll"
        return completed

    def _action(self, message: wire.Unroll, length: int) -> NDArray[Any]:
        space, e = self._action_space, self._session.num_envs
        _check_size(message, "action", length * e * space.array.row_bytes)
        action = space.read(message.action, length * e)
        if (wrong := space.wrong(action)) is not None:
            raise InvalidStep("action", str(space), wrong, "see Unroll")
        return action.reshape(length, e, *space.array.shape)

    def _behaviour(self, message: wire.Unroll, length: int) -> dict[str, NDArray[np.float32]]:
        specs = self._unroll.behaviour
        if len(message.behaviour) != len(specs):
            names = ", ".join(specs)
            raise InvalidStep("behaviour", names, f"{len(message.behaviour)} arrays", "see Unroll")
        shape = (length, self._session.num_envs)
        return {
            name: self._numbers(name, data, shape, array)
            for (name, array), data in zip(specs.items(), message.behaviour, strict=True)
        }

    def _numbers(
        self, name: str, data: bytes, shape: tuple[int, ...], array: ArraySpec
    ) -> NDArray[np.float32]:
        """Return a float32 array of finite numbers."""
        expected = int(np.prod(shape)) * array.row_bytes
        if len(data) != expected:
            advice = "start actor and learner with the same experiment"
            raise InvalidStep(name, f"{expected} bytes", f"{len(data)} bytes", advice)
        numbers = np.frombuffer(data, array.dtype).reshape(*shape, *array.shape)
        try:
            if numbers.size:
                check_magnitudes(name, numbers, _LARGEST)
        except InvalidNumbers as wrong:
            raise InvalidStep(name, wrong.expected, wrong.received, "see Unroll") from None
        return numbers


def _check_size(message: wire.Unroll, field: str, expected: int) -> None:
    received = len(getattr(message, field))
    if received != expected:
        advice = "send what Hello announced: T steps, one more in the first unroll"
        raise InvalidStep(field, f"{expected} bytes", f"{received} bytes", advice)
