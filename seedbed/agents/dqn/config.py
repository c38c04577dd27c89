"""Hyperparameters of DQN: the section `dqn` of an experiment."""

from __future__ import annotations

from seedbed.config.agents import Dqn as Options

__all__ = ["Options"]
