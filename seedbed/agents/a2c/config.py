"""Hyperparameters of A2C: the section `a2c` of an experiment."""

from __future__ import annotations

from seedbed.config.agents import A2c as Options

__all__ = ["Options"]
