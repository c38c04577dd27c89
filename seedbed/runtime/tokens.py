"""Tokens of processes, a secret for each role, and the file that holds them.

docs/security.md has the roles and the format of the file.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.runtime.private_files import require_private

log = logging.getLogger(__name__)

# Name of the environment variable that stands in for `--token-file`.
TOKEN_FILE_VARIABLE = "SEEDBED_TOKEN_FILE"
AUTHORIZATION = "authorization"
BEARER = "Bearer "
_SECRET = re.compile(r"[!-~]{16,512}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_RANKED = re.compile(r"learner-(0|[1-9]\d{0,3})")
# Name of the environment variable that names the file with the key of a learner's rank.
RANK_KEY_FILE_VARIABLE = "SEEDBED_RANK_KEY_FILE"


class Role(StrEnum):
    """Role of a process, which decides the methods that it may call."""

    ACTOR = "actor"
    LEARNER = "learner"
    SHARD = "shard"
    OBSERVER = "observer"


class Caller(NamedTuple):
    """Whose secret a call has.

    Attributes:
        role: role of the caller; None where no credential is demanded.
        rank: rank of a learner among those of its run, where the secret is the key of a rank.
    """

    role: Role | None
    rank: int | None = None


class _Line(NamedTuple):
    caller: Caller
    digest: bytes
    secret: str  # empty where the line has the digest alone


class Tokens:
    """Tokens of files, each of which is read again when it changes. Thread-safe.

    Args:
        paths: files with one `ROLE SECRET` or `ROLE sha256:HEX` a line. A ROLE of `learner-RANK` is
            the key of a learner's rank.

    Raises:
        SeedbedError: CONFIG, a file cannot be read, others may read it, or a line of it is wrong.
    """

    def __init__(self, *paths: str | Path) -> None:
        self.paths = tuple(map(Path, paths))
        self._stamps: dict[Path, tuple[int, int, int]] = {}
        self._lines: dict[Path, list[_Line]] = {}
        for path in self.paths:
            self._read(path)

    def _read(self, path: Path) -> None:
        try:
            stat = path.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamps.get(path):
                return
            require_private(path, stat, "--token-file")
            texts = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or error
            raise ConfigError(f"--token-file: cannot read {path}: {cause}") from error
        lines = [
            _line_of(words, f"--token-file: line {number} of {path}")
            for number, text in enumerate(texts, 1)
            if (words := text.split()) and not words[0].startswith("#")
        ]
        if not lines:
            raise ConfigError(f"--token-file: {path} has no token: `seedbed tokens` makes some")
        self._lines[path], self._stamps[path] = lines, stamp

    def _all(self) -> Iterator[_Line]:
        for path in self.paths:
            try:
                self._read(path)
            except SeedbedError as error:
                # The file is being replaced: the old tokens are still valid.
                log.warning("%s; the tokens that were read before stay valid", error)
            yield from self._lines[path]

    def has_secret(self, role: Role, rank: int | None = None) -> bool:
        """Return whether there is a secret of this role or rank, and not only a digest."""
        return any(line.secret for line in self._all() if line.caller == (role, rank))

    @property
    def has_ranks(self) -> bool:
        """Return whether there is a key of any rank, or its digest."""
        return any(line.caller.rank is not None for line in self._all())

    def secret(self, role: Role, rank: int | None = None) -> str:
        """Return the secret that a client of this role sends: the first of the files.

        Args:
            role: role of the client.
            rank: rank of a learner, for its key; None: the secret of the role.

        Raises:
            SeedbedError: CONFIG, there is none.
        """
        for line in self._all():
            if line.secret and line.caller == (role, rank):
                return line.secret
        name = role if rank is None else f"{role}-{rank}"
        raise ConfigError(
            f"--token-file: {' and '.join(map(str, self.paths))} has no line `{name} SECRET`, "
            "which this process sends"
        )

    def caller_of(self, secret: str) -> Caller | None:
        """Return whose secret it is, or None if no file has it. Constant time."""
        digest, found = digest_of(secret), None
        for line in self._all():
            if hmac.compare_digest(digest, line.digest):
                found = line.caller
        return found


def _line_of(words: list[str], where: str) -> _Line:
    """Return a line of a token file.

    Raises:
        SeedbedError: CONFIG. The line itself is secret, so that it is not shown.
    """
    ranked = _RANKED.fullmatch(words[0])
    if len(words) != 2 or not (ranked or words[0] in set(Role)):
        roles = ", ".join(Role)
        raise ConfigError(
            f"{where} is not `ROLE SECRET` with a ROLE of {roles}, or of learner-RANK"
        )
    caller = Caller(Role.LEARNER, int(ranked[1])) if ranked else Caller(Role(words[0]))
    secret = words[1]
    if match := _DIGEST.fullmatch(secret):
        return _Line(caller, bytes.fromhex(match[1]), "")
    if secret.startswith("sha256:") or not _SECRET.fullmatch(secret):
        raise ConfigError(
            f"{where} has no secret of 16 to 512 printable characters, nor sha256:HEX"
        )
    return _Line(caller, digest_of(secret), secret)


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 digest of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def authorization_of(header: str) -> str:
    """Return the secret of an `Authorization` header; empty if it has none."""
    return header.removeprefix(BEARER) if header.startswith(BEARER) else ""


def token_file(given: str | None) -> str | None:
    """Return the token file: the one that is given, or the environment's; None without."""
    return given or os.environ.get(TOKEN_FILE_VARIABLE) or None


def rank_key_file() -> str | None:
    """Return the file with the key of this learner's rank, of the environment; None without."""
    return os.environ.get(RANK_KEY_FILE_VARIABLE) or None


# Roles whose calls each kind of process serves.
_SERVES: Mapping[Role, tuple[Role, ...]] = {
    Role.ACTOR: (),
    Role.LEARNER: (Role.ACTOR, Role.LEARNER, Role.OBSERVER),
    Role.SHARD: (Role.LEARNER, Role.OBSERVER),
    Role.OBSERVER: (Role.LEARNER, Role.OBSERVER),
}


def ranks_with_keys(learners: int) -> range:
    """Return the ranks that have keys among the learners of a run: none where there is one."""
    return range(learners if learners > 1 else 0)


def new_rank_keys(ranks: Iterable[int]) -> tuple[dict[str, str], str]:
    """Return new keys of learners' ranks, in lines of token files.

    Args:
        ranks: ranks that get a key.

    Returns:
        The line of each key, by the name of its role, and the lines of all their digests.
    """
    drawn = {f"{Role.LEARNER}-{rank}": secrets.token_urlsafe(32) for rank in ranks}
    digests = (_digest_line(name, secret) for name, secret in drawn.items())
    return {name: f"{name} {secret}\n" for name, secret in drawn.items()}, "".join(digests)


def new_token_files(learners: int = 1) -> dict[str, str]:
    """Return the text of a new token file for each kind of process.

    A file has the secret of its own role, and the digests of the roles that the process serves.

    Args:
        learners: learners of a run. Several have a key each, and files `learner-0` and so on.
    """
    drawn = {role: secrets.token_urlsafe(32) for role in Role}
    files = {
        str(role): "".join(
            [f"{role} {drawn[role]}\n"] + [_digest_line(other, drawn[other]) for other in served]
        )
        for role, served in _SERVES.items()
    }
    keys, digests = new_rank_keys(ranks_with_keys(learners))
    files[Role.LEARNER] += digests
    return files | {name: key + files[Role.LEARNER] for name, key in keys.items()}


def _digest_line(name: str, secret: str) -> str:
    return f"{name} sha256:{digest_of(secret).hex()}\n"
