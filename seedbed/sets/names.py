"""Names of runs: read by people, legal as a folder, a release, a label and a column."""

import re
from collections.abc import Mapping
from typing import Any

from seedbed.config.schema import NAME_LETTERS
from seedbed.sets.identity import same

_DIGEST_LETTERS = 6
# A reader looks for the game, also for the experiment's own.
_ALWAYS = "environment.id"
_KEY_WORDS = {
    _ALWAYS: "env",
    "learner.optimizer.learning_rate": "lr",
    "learner.batch_size": "bs",
}


def run_name(
    set_name: str, values: Mapping[str, Any], base: Mapping[str, Any], seed: int, digest: str
) -> str:
    """Return the name of a run: its set, the values that are not the experiment's own, the seed.

    The arguments alone determine the name, so that it is the same here and on a cluster, and stays
    when axes are added. Where words do not show all of it, the digest tells it apart.

    Args:
        set_name: Name of the set, at most `sweep.SET_LETTERS` letters.
        values: Values of the setting by key.
        base: What the experiment has for these keys.
        seed: Seed of the run.
        digest: Digest of the run.

    Returns:
        At most `NAME_LETTERS` letters of `a-z0-9-`.
    """
    own = {
        key: value
        # First, so that a name that is cut still has the game.
        for key, value in sorted(values.items(), key=lambda item: (item[0] != _ALWAYS, item[0]))
        if key == _ALWAYS or not same(value, base.get(key))
    }
    words = {key: value_word(key, value) for key, value in own.items()}
    parts = [f"{key_word(key)}-{word or slug(str(own[key]))}" for key, word in words.items()]
    text = "-".join([set_name, *parts])
    name = f"{text}-s{seed}"
    if all(words.values()) and len(name) <= NAME_LETTERS:
        return name
    return with_digest(text, seed, digest)


def with_digest(text: str, seed: int, digest: str) -> str:
    """Return the beginning of a name, cut where it is too long, with digest and seed."""
    end = f"-{digest[:_DIGEST_LETTERS]}-s{seed}"
    return text[: NAME_LETTERS - len(end)].rstrip("-") + end


def key_word(key: str) -> str:
    """Return a key's last part as a word of a name: `lr` of `learner.optimizer.learning_rate`."""
    return _KEY_WORDS.get(key) or slug(key.rpartition(".")[2])


def value_word(key: str, value: Any) -> str | None:
    """Return a value as a word that tells it from others; None where there is none.

    A point becomes `p`, a minus `m`: 0.003 is `3e-3`, 0.5 is `0p5`, -1 is `m1`.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{'m' * (value < 0)}{abs(value)}"
    if isinstance(value, float):
        return _float_word(value)
    if isinstance(value, str) and (key == _ALWAYS or re.fullmatch(r"[a-z][a-z0-9_]*", value)):
        return slug(value)
    return None


def _float_word(value: float) -> str:
    sign = "m" * (value < 0)
    size = abs(value)
    if size and not 1e-2 <= size < 1e6:
        digits = next(digits for digits in range(17) if float(f"{size:.{digits}e}") == size)
        mantissa, _, exponent = f"{size:.{digits}e}".partition("e")
        return f"{sign}{mantissa.replace('.', 'p')}e{int(exponent)}"
    return sign + repr(size).removesuffix(".0").replace(".", "p")


def slug(text: str) -> str:
    """Return a text in letters of a name, without what cannot be one."""
    dashed = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    return re.sub(r"[^a-z0-9]+", "-", dashed.removeprefix("atari:")).strip("-")
