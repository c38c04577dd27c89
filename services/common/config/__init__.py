"""The experiment: its schema, and how it is read."""

from services.common.config.load import load_experiment, parse_experiment
from services.common.config.schema import Experiment

__all__ = ["Experiment", "load_experiment", "parse_experiment"]
