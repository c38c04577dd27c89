"""Runs in groups: those whose settings, code and machine are alike are the seeds of one group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seedbed.config.explain import settings_named
from seedbed.config.keys import keys
from seedbed.runtime.exit_codes import ExitCode, SeedbedError
from seedbed.sets.identity import as_json
from seedbed.sets.names import key_word
from seedbed.sets.records import Record
from seedbed.sets.resolve import FOLDERS, describe
from seedbed.settings import FREE

# Each run has its own of these: no person has chosen between them. The chart writes the addresses.
_NEVER = (
    *("name", "seed", *FOLDERS),
    *("gossip.addresses", "learner.coordinator", "learner.replay.shards"),
)


@dataclass(frozen=True)
class Group:
    """Runs of one setting.

    Attributes:
        values: What tells the group from the others, by key.
        records: Its runs, by seed.
    """

    values: Mapping[str, Any]
    records: Sequence[Record]

    @property
    def label(self) -> str:
        """The values in words."""
        return setting_words(self.values) or "one setting"


@dataclass(frozen=True)
class Grouping:
    """Runs in groups, and what differs between them.

    Attributes:
        settings: Values of each setting that differs, by key.
        setup: Values of what else differs, such as the commit.
        groups: The groups, in the order of their first runs.
        searched: Settings in which runs of a group differ and which change what is learned.
        notes: What a reader has to know of the groups.
    """

    settings: Mapping[str, Sequence[Any]]
    setup: Mapping[str, Sequence[str]]
    groups: Sequence[Group]
    searched: Sequence[str]
    notes: Sequence[str]


def group_runs(
    records: Sequence[Record], by: Sequence[str] = (), strata: Sequence[str] = ()
) -> Grouping:
    """Return runs in groups.

    Args:
        records: The runs.
        by: Keys of the groups; empty takes all that differ and change what is learned, and keeps
            runs of other code, versions, machines and protocols of evaluation apart.
        strata: Keys of which each group has all values, and which so are no keys of groups.

    Raises:
        SeedbedError: USAGE, no two runs differ in a key of `by`.
    """
    differing = _differing(records)
    for key in by:
        if key == "seed":
            text = "--by seed: a seed is the unit of a comparison, and no group"
            raise SeedbedError(ExitCode.USAGE, text)
        if key not in differing:
            some = f"; these do: {', '.join(differing)}" if differing else ""
            raise SeedbedError(ExitCode.USAGE, f"--by {key}: no two runs differ in it{some}")
    names = dict.fromkeys(name for record in records for name in record.setup)
    setup = {
        name: sorted(found)
        for name in names
        if len(found := {one.setup[name] for one in records if name in one.setup}) > 1
    }
    grouping = list(by) or [
        key for key, free in differing.items() if not free and key not in strata
    ]
    left = [key for key in differing if key not in (*grouping, *strata)]
    searched = [key for key in left if not differing[key]]
    notes = []
    if by and (left or setup):
        notes.append(f"pooled, though they differ: {', '.join([*left, *setup])}")
    elif left:
        notes.append(f"differ too, and change nothing that is learned: {', '.join(left)}")
    if setup and not by:
        apart = " or ".join(setup)
        notes.append(f"runs of another {apart} are groups of their own; --by KEY pools them")
    groups = _groups(records, grouping, () if by else tuple(setup))
    settings = {key: _values(records, key) for key in differing}
    return Grouping(settings, setup, groups, searched, notes)


def setting_words(values: Mapping[str, Any]) -> str:
    """Return values of settings in words, by the last parts of their keys where these suffice."""
    words = [key_word(key) for key in values]
    named = {
        word if words.count(word) == 1 else key: value
        for word, (key, value) in zip(words, values.items(), strict=True)
    }
    return describe(named) if named else ""


def differing_settings(records: Sequence[Record]) -> list[str]:
    """Return the keys of the settings that differ between runs, in the order of the reference."""
    return list(_differing(records))


def keys_named(words: Iterable[str]) -> list[str]:
    """Return keys by their paths or their last parts, such as `learning_rate`.

    Raises:
        SeedbedError: USAGE, a word names no key, or several.
    """
    known = {key.path for key in keys()}
    found = []
    for word in words:
        named = [word] if word in known else settings_named(word)
        # A word that is only like a key is told, and not taken.
        is_part = len(named) == 1 and (
            f".{named[0]}".endswith(f".{word.replace('-', '_')}") or key_word(named[0]) == word
        )
        if not is_part:
            meant = f": did you mean {' or '.join(named)}?" if named else ""
            raise SeedbedError(
                ExitCode.USAGE,
                f"by {word}: no such key{meant or '; `seedbed config show FILE` has them all'}",
            )
        found += named
    return found


def _differing(records: Sequence[Record]) -> dict[str, bool]:
    """Return the keys that differ, and whether they change nothing that is learned."""
    return {
        key.path: key.key_class is FREE
        for key in keys()
        if key.path not in _NEVER
        and not key.path.startswith(("logging.", "cost."))
        and len({as_json(record.settings[key.path]) for record in records}) > 1
    }


def _values(records: Iterable[Record], key: str) -> list[Any]:
    found = {as_json(record.settings[key]): record.settings[key] for record in records}
    values = list(found.values())
    if all(type(value) in (int, float) for value in values):
        values.sort()
    return values


def _groups(
    records: Sequence[Record], grouping: Sequence[str], setup: Sequence[str]
) -> list[Group]:
    found: dict[str, tuple[dict[str, Any], list[Record]]] = {}
    for record in records:
        values = {key: record.settings[key] for key in grouping}
        values |= {name: record.setup.get(name, "") for name in setup}
        found.setdefault(as_json(values), (values, []))[1].append(record)
    return [
        Group(values, sorted(some, key=lambda one: (one.seed, one.name)))
        for values, some in found.values()
    ]
