"""Tokens of processes, a secret for each role, and the file that holds them.

docs/security.md has the roles and the format of the file.
"""

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from seedbed.runtime.exit_codes import ConfigError, SeedbedError
from seedbed.runtime.private_files import require_private

log = logging.getLogger(__name__)

# Name of the environment variable that stands in for `--token-file`.
TOKEN_FILE_VARIABLE = "SEEDBED_TOKEN_FILE"
AUTHORIZATION = "authorization"
BEARER = "Bearer "
_SECRET = re.compile(r"[!-~]{16,512}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


class Role(StrEnum):
    """Role of a process, which decides the methods that it may call."""

    ACTOR = "actor"
    LEARNER = "learner"
    SHARD = "shard"
    OBSERVER = "observer"


class Tokens:
    """Tokens of a file, which is read again when it changes. Thread-safe.

    Args:
        path: file with one `ROLE SECRET` or `ROLE sha256:HEX` a line.

    Raises:
        SeedbedError: CONFIG, the file cannot be read, others may read it, or a line of it is wrong.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._secrets: dict[Role, str] = {}  # first of each role
        self._digests: list[tuple[bytes, Role]] = []
        self._read()

    def _read(self) -> None:
        try:
            stat = self._path.stat()
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return
            require_private(self._path, stat, "--token-file")
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or error
            raise ConfigError(f"--token-file: cannot read {self._path}: {cause}") from error
        first: dict[Role, str] = {}
        digests: list[tuple[bytes, Role]] = []
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or words[0] not in set(Role):
                raise self._wrong(number, f"is not `ROLE SECRET` with a ROLE of {', '.join(Role)}")
            role, secret = Role(words[0]), words[1]
            if match := _DIGEST.fullmatch(secret):
                digests.append((bytes.fromhex(match[1]), role))
            elif secret.startswith("sha256:") or not _SECRET.fullmatch(secret):
                raise self._wrong(
                    number, "has no secret of 16 to 512 printable characters, nor sha256:HEX"
                )
            else:
                first.setdefault(role, secret)
                digests.append((digest_of(secret), role))
        if not digests:
            raise ConfigError(
                f"--token-file: {self._path} has no token: `seedbed tokens` makes some"
            )
        self._secrets, self._digests, self._stamp = first, digests, stamp

    def _wrong(self, number: int, cause: str) -> SeedbedError:
        # The line itself is secret.
        return ConfigError(f"--token-file: line {number} of {self._path} {cause}")

    def _refresh(self) -> None:
        try:
            self._read()
        except SeedbedError as error:
            # The file is being replaced: the old tokens are still valid.
            log.warning("%s; the tokens that were read before stay valid", error)

    def has_secret(self, role: Role) -> bool:
        """Return whether the file has a secret of this role, and not only a digest."""
        self._refresh()
        return role in self._secrets

    def secret(self, role: Role) -> str:
        """Return the secret that a client of this role sends.

        Raises:
            SeedbedError: CONFIG, the file has none.
        """
        self._refresh()
        if role not in self._secrets:
            raise ConfigError(
                f"--token-file: {self._path} has no line `{role} SECRET`, which this process sends"
            )
        return self._secrets[role]

    def role_of(self, secret: str) -> Role | None:
        """Return the role of a secret, or None if the file does not have it. Constant time."""
        self._refresh()
        digest, found = digest_of(secret), None
        for known, role in self._digests:
            if hmac.compare_digest(digest, known):
                found = role
        return found


def digest_of(secret: str) -> bytes:
    """Return the SHA-256 digest of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


def authorization_of(header: str) -> str:
    """Return the secret of an `Authorization` header; empty if it has none."""
    return header.removeprefix(BEARER) if header.startswith(BEARER) else ""


def token_file(given: str | None) -> str | None:
    """Return the token file: the one that is given, or the environment's; None without."""
    return given or os.environ.get(TOKEN_FILE_VARIABLE) or None


# Roles whose calls each kind of process serves.
_SERVES: Mapping[Role, tuple[Role, ...]] = {
    Role.ACTOR: (),
    Role.LEARNER: (Role.ACTOR, Role.LEARNER, Role.OBSERVER),
    Role.SHARD: (Role.LEARNER, Role.OBSERVER),
    Role.OBSERVER: (Role.LEARNER, Role.OBSERVER),
}


def new_token_files() -> dict[Role, str]:
    """Return the text of a new token file for each kind of process.

    A file has the secret of its own role, and the digests of the roles that the process serves.
    """
    drawn = {role: secrets.token_urlsafe(32) for role in Role}
    return {
        role: "".join(
            [f"{role} {drawn[role]}\n"]
            + [f"{other} sha256:{digest_of(drawn[other]).hex()}\n" for other in served]
        )
        for role, served in _SERVES.items()
    }
