"""Hyperparameters of V-trace: the section `vtrace` of an experiment."""

from __future__ import annotations

from services.common.config.agents import Vtrace as Options

__all__ = ["Options"]
