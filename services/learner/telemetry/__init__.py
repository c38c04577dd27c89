"""Counting, measuring and showing what a learner does."""

from services.learner.telemetry.busy import BusyClock
from services.learner.telemetry.counters import Counters
from services.learner.telemetry.telemetry import Telemetry

__all__ = ["BusyClock", "Counters", "Telemetry"]
