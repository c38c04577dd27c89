"""Hyperparameters of V-trace: the section `vtrace` of an experiment."""

from __future__ import annotations

from seedbed.config.agents import Vtrace as Options

__all__ = ["Options"]
