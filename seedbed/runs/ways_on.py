"""Ways on from a run that cannot resume as it is: whole commands, ready to copy."""

import ast
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

# Values of the chart that do what an option does.
_CHART_VALUES = {"--run-dir": "learner.run", "--change": "learner.acceptChange"}
# What a learner of a set on a cluster is called as; the last word is the name of the set.
_OF_A_SET = "seedbed deploy "
_RETRY = "--retry failed"  # the controller has taken the refused run for failed


class WaysOn(NamedTuple):
    """What the commands are made of. Without `command` there are none.

    Attributes:
        command: Words of the refused command; one word is a call in Python, the `helm upgrade` of
            a release, or the `seedbed deploy` of a set whose run this is.
        elsewhere: Run directory that does not exist yet.
        run: Directory of the run; empty where its file has other settings than the run.
        checkpoints: `learner.checkpoint.directory` of the refused command.
    """

    command: Sequence[str] = ()
    elsewhere: str = ""
    run: str = ""
    checkpoints: str = ""

    @property
    def option(self) -> str:
        """Name of the option, or of the chart's value, that accepts a change."""
        return _CHART_VALUES["--change"] if self._is_chart else "--change"

    @property
    def _is_chart(self) -> bool:
        return len(self.command) == 1 and self.command[0].startswith(("helm ", _OF_A_SET))

    @property
    def _is_set(self) -> bool:
        return len(self.command) == 1 and self.command[0].startswith(_OF_A_SET)

    def from_result(self, old: str, digest: str) -> list[str]:
        """Return the lines of the ways on from a change of what is measured.

        Args:
            old: The old settings, in words, for a person who sets them back.
            digest: Name of the change.
        """
        if not self.command:
            return [f"  old settings  {old}", f"  this run      --change {digest}"]
        if self._is_set:
            old = f"{old}: {self.command[0]} {_RETRY} ..."
        elif self._is_chart:
            old = self._rollback
        elif self.run:
            is_call = len(self.command) == 1
            words = ["seedbed", "train", self.run]
            old = f"seedbed.train({self.run!r})" if is_call else shlex.join(words)
        return [
            f"  {self._new}       {self._new_run}",
            f"  old settings  {old}",
            f"  this run      {self._with('--change', digest)}",
        ]

    def from_identity(self) -> list[str]:
        """Return the lines of the ways on from a change with which no run resumes."""
        if self._is_set:
            way = f"set them back (`{self.command[0]} {_RETRY} ...`), or begin a new set"
        elif self._is_chart:
            way = f"set them back (`{self._rollback}`), or begin a new run (with --set "
            way += "learner.initFrom=RUN to start from these parameters where the shapes fit)"
        else:
            way = "set them back, or begin a new run: another --run-dir (with --init-from to start "
            way += "from these parameters where the shapes fit), or --restart fresh"
        return [way, *self.new_run()]

    def new_run(self) -> list[str]:
        """Return the line of the command of a new run."""
        return [f"  {self._new}   {self._new_run}"] if self.command else []

    @property
    def _new(self) -> str:
        return "new set" if self._is_set else "new run"

    @property
    def _new_run(self) -> str:
        """The command of a new run, whose checkpoints are not beside those of this one."""
        if not self.checkpoints or self._is_chart:  # the chart gives each run a folder of its own
            return self._with("--run-dir", self.elsewhere)
        setting = f"learner.checkpoint.directory={self.checkpoints.rstrip('/')}-2"
        if len(self.command) == 1:
            command: Sequence[str] = [_with_override(self.command[0], setting)]
        else:
            command = [*self.command, "--set", setting]
        return self._replace(command=command)._with("--run-dir", self.elsewhere)

    @property
    def _rollback(self) -> str:
        return self.command[0].replace(" upgrade ", " rollback ", 1)

    def _with(self, option: str, value: str) -> str:
        """Return the command with one option set. Another run directory needs no `--change`."""
        if self._is_set:
            if option == "--run-dir":
                return f"{self.command[0].rpartition(' ')[0]} ANOTHER ..."
            return f"{self.command[0]} {_RETRY} ... --set {_CHART_VALUES[option]}={value}"
        if self._is_chart:
            if option == "--run-dir":
                value = _folder(value)
            return f"{self.command[0]} ... --set {_CHART_VALUES[option]}={value}"
        if len(self.command) == 1:
            return _call(self.command[0], option[2:].replace("-", "_"), value)
        dropped = {option, "--change"}
        kept: list[str] = []
        skip = False
        for word in self.command:
            if skip:
                skip = False
            elif word in dropped:
                skip = True
            elif word.partition("=")[0] not in dropped:
                kept.append(word)
        return shlex.join([*kept, option, value])


def _call(call: str, keyword: str, value: Any) -> str:
    """Return a call of `seedbed.train` with one argument set. Another directory has no `change`."""
    tree = _parsed(call)
    tree.keywords = [each for each in tree.keywords if each.arg not in (keyword, "change")]
    tree.keywords.append(ast.keyword(keyword, ast.parse(repr(value), mode="eval").body))
    return ast.unparse(tree)


def _parsed(call: str) -> ast.Call:
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call)
    return tree


def _with_override(call: str, setting: str) -> str:
    """Return a call of `seedbed.train` with one more of its `overrides`."""
    given = [each for each in _parsed(call).keywords if each.arg == "overrides"]
    settings = ast.literal_eval(given[0].value) if given else []
    return _call(call, "overrides", [*settings, setting])


def _folder(elsewhere: str) -> str:
    """Return the `learner.run` of a path on the learner's volume, `/runs/RUN[/learner-RANK]`."""
    run, *own = elsewhere.partition("runs/")[2].split("/")
    return f"{run}-2" if own else run
