"""Agents whose training step waits, as a slow or a hanging accelerator does."""

from __future__ import annotations

import time
from pathlib import Path

import tensorflow as tf
from pydantic import BaseModel
from typing_extensions import override

from seedbed.agents.dqn.agent import DqnAgent
from seedbed.agents.dqn.options import DqnOptions
from seedbed.agents.protocol import Unroll
from seedbed.agents.vtrace.agent import VtraceAgent
from seedbed.agents.vtrace.options import VtraceOptions
from seedbed.networks.body import Body
from seedbed.types import Params, Tensor


def wait(file: str) -> None:
    """Wait for the seconds that a file holds, in each training step."""

    def sleep() -> None:
        if Path(file).exists():
            time.sleep(float(Path(file).read_text()))

    tf.py_function(sleep, [], [])


class WaitingVtraceOptions(VtraceOptions):
    """Those of V-trace, and the file of the seconds."""

    file: str = ""


class WaitingDqnOptions(DqnOptions):
    """Those of DQN, and the file of the seconds."""

    file: str = ""


class WaitingVtrace(VtraceAgent):
    """V-trace with a slow training step."""

    Options: type[BaseModel] = WaitingVtraceOptions

    @override
    def loss(self, params: Params, unroll: Unroll) -> tuple[Tensor, dict[str, Tensor]]:
        wait(self.options.file)
        return super().loss(params, unroll)


class WaitingDqn(DqnAgent):
    """DQN with a slow training step."""

    Options: type[BaseModel] = WaitingDqnOptions

    def __init__(self, options: WaitingDqnOptions, body: Body, actions: int) -> None:
        super().__init__(options, body, actions)
        self._file = options.file

    @override
    def loss(
        self, params: Params, target_params: Params, unroll: Unroll, importance_weight: Tensor
    ) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        wait(self._file)
        return super().loss(params, target_params, unroll, importance_weight)
