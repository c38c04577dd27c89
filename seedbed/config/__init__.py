"""The experiment: the schema, and how a file is read."""

from seedbed.config.load import load_experiment, parse_experiment
from seedbed.config.schema import Experiment

__all__ = ["Experiment", "load_experiment", "parse_experiment"]
