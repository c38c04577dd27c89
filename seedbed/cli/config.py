"""Print the schema, the reference, or an experiment with all defaults."""

import argparse
import json

from seedbed.cli.arguments import add_experiment
from seedbed.config import Experiment, load_experiment
from seedbed.config.load import dump_experiment
from seedbed.config.reference import reference

_DRAFT = "https://json-schema.org/draft/2020-12/schema"  # what Pydantic writes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `config schema`, `config show` and `config reference`."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("schema", help="print the JSON Schema of an experiment")
    actions.add_parser("reference", help="print docs/configuration.md")
    show = actions.add_parser("show", help="print an experiment with all defaults, as YAML")
    add_experiment(show)


def run(args: argparse.Namespace) -> None:
    """Print to stdout.

    Raises:
        SeedbedError: CONFIG: the experiment is wrong.
    """
    if args.action == "schema":
        schema = {"$schema": _DRAFT, **Experiment.model_json_schema()}
        print(json.dumps(schema, indent=2, ensure_ascii=False))
    elif args.action == "reference":
        print(reference(), end="")
    else:
        print(dump_experiment(load_experiment(args.experiment, args.set)), end="")
