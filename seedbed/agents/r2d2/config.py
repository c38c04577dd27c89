"""Hyperparameters of R2D2: the section `r2d2` of an experiment."""

from __future__ import annotations

from seedbed.config.agents import QLearning
from seedbed.config.agents import R2d2 as Options

__all__ = ["Options", "QLearning"]
