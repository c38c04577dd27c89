"""The names of the numbers of a run, and those of kept progress.csv files.

A number of `progress.csv`, of `numbers` in status.json, of TensorBoard and of W&B has the name of
its metric, without `seedbed_` and `_total`, with the labels' values (`Metric.numbers`).
"""

from collections.abc import Iterable

# Of the columns that `seedbed plot` and `seedbed table` read.
OLD_NAMES = {
    "learner_cores": "learner_cpu_cores",
    "return_mean": "mean_return",
    "seconds": "run_seconds",
}


def present_names(names: Iterable[str]) -> list[str]:
    """Return the names of a kept file as they are today.

    Args:
        names: Names in a file; one whose successor is there too is another number, and stays.
    """
    there = list(names)
    return [old if (new := OLD_NAMES.get(old, old)) in there else new for old in there]
