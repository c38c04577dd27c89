"""Hyperparameters of DQN: the section `dqn` of an experiment."""

from __future__ import annotations

from services.common.config.agents import Dqn as Options

__all__ = ["Options"]
