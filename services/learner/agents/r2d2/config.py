"""Hyperparameters of R2D2: the section `r2d2` of an experiment."""

from __future__ import annotations

from services.common.config.agents import QLearning
from services.common.config.agents import R2d2 as Options

__all__ = ["Options", "QLearning"]
