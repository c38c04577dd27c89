"""Credentials of calls: tokens and certificates, their roles, and the methods of each role.

docs/security.md has the table of roles and methods, and the format of a token file.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import grpc

from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ExitCode, SeedbedError

log = logging.getLogger(__name__)

# Name of the environment variable that stands in for `--token-file`.
TOKEN_FILE_VARIABLE = "SEEDBED_TOKEN_FILE"
AUTHORIZATION = "authorization"
_BEARER = "Bearer "
_SECRET = re.compile(r"[!-~]{16,512}")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
# Last label of a certificate's DNS name that states a role.
_ROLE_DOMAIN = ".seedbed"


class Role(StrEnum):
    """Role of a process, which decides the methods that it may call."""

    ACTOR = "actor"
    LEARNER = "learner"
    SHARD = "shard"
    OBSERVER = "observer"


_LEARNERS = frozenset({Role.LEARNER})
MAY_CALL: Mapping[str, frozenset[Role]] = {
    "/seedbed.v1.Inference/Act": frozenset({Role.ACTOR}),
    "/seedbed.v1.Inference/GetStatus": frozenset({Role.ACTOR, Role.LEARNER, Role.OBSERVER}),
    "/seedbed.v1.Replay/Insert": _LEARNERS,
    "/seedbed.v1.Replay/Sample": _LEARNERS,
    "/seedbed.v1.Replay/Prioritize": _LEARNERS,
    "/seedbed.v1.Replay/GetState": frozenset({Role.LEARNER, Role.OBSERVER}),
    "/seedbed.v1.Gossip/Push": _LEARNERS,
    "/seedbed.v1.Gossip/Fetch": _LEARNERS,
    "/seedbed.v1.Gossip/Reduce": _LEARNERS,
}


class Denial(NamedTuple):
    """Status with which a call is refused."""

    code: grpc.StatusCode
    message: str


class Tokens:
    """Tokens of a file, which is read again when it changes. Thread-safe.

    Args:
        path: file with one `ROLE SECRET` or `ROLE sha256:HEX` a line.

    Raises:
        SeedbedError: CONFIG, the file cannot be read, or a line of it is wrong.
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
            lines = self._path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            cause = getattr(error, "strerror", None) or error
            raise SeedbedError(
                ExitCode.CONFIG, f"--token-file: cannot read {self._path}: {cause}"
            ) from error
        secrets: dict[Role, str] = {}
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
                secrets.setdefault(role, secret)
                digests.append((digest_of(secret), role))
        self._secrets, self._digests, self._stamp = secrets, digests, stamp

    def _wrong(self, number: int, cause: str) -> SeedbedError:
        # The line itself is secret.
        return SeedbedError(ExitCode.CONFIG, f"--token-file: line {number} of {self._path} {cause}")

    def _refresh(self) -> None:
        try:
            self._read()
        except SeedbedError as error:
            # The file is being replaced: the old tokens are still valid.
            log.warning("%s; the tokens that were read before stay valid", error)

    def secret(self, role: Role) -> str:
        """Return the secret that a client of this role sends.

        Raises:
            SeedbedError: CONFIG, the file has none.
        """
        self._refresh()
        if role not in self._secrets:
            raise SeedbedError(
                ExitCode.CONFIG,
                f"--token-file: {self._path} has no line `{role} SECRET`, which this process sends",
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


@dataclass(frozen=True)
class Credentials:
    """Credentials of a process, with which it calls others and judges calls.

    Attributes:
        role: role of this process.
        tokens: tokens; None: calls carry none, and none is demanded.
        tls: certificates; None: connections are not encrypted.
        release: `RELEASE.NAMESPACE` that a peer's certificate must name; empty: any.
    """

    role: Role
    tokens: Tokens | None = None
    tls: Tls | None = None
    release: str = ""

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that each call of this process carries."""
        if self.tokens is None:
            return ()
        return ((AUTHORIZATION, _BEARER + self.tokens.secret(self.role)),)

    def denial(
        self,
        method: str,
        metadata: Iterable[tuple[str, str | bytes]],
        auth_context: Mapping[str, Sequence[bytes]],
    ) -> Denial | None:
        """Return why a call is refused, or None if it is allowed.

        Args:
            method: full name, such as `/seedbed.v1.Inference/Act`.
            metadata: the call's initial metadata.
            auth_context: the connection's, as gRPC gives it; empty without TLS.
        """
        allowed = MAY_CALL.get(method)
        if allowed is None:
            return Denial(grpc.StatusCode.PERMISSION_DENIED, f"{method} has no role")
        if self.tokens is None and self.tls is None:
            return None
        role: Role | None = None
        if self.tokens is not None:
            role = self.tokens.role_of(_secret_of(metadata))
            if role is None:
                return Denial(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "a token of this release is demanded: give the client --token-file, or "
                    f"{TOKEN_FILE_VARIABLE} (docs/security.md)",
                )
        if self.tls is not None:
            named, release = _identity_of(auth_context)
            if named is not None and self.release and release != self.release:
                return Denial(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"the certificate is of release {release}, and this one is {self.release}",
                )
            if named is None and role is None:
                return Denial(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "the certificate has no DNS name ROLE.RELEASE.NAMESPACE.seedbed, which states "
                    "its role, and no token file is in use (docs/security.md)",
                )
            if named is not None and role not in (None, named):
                return Denial(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"the certificate is of role {named}, and the token of role {role}",
                )
            role = role or named
        if role in allowed:
            return None
        wanted = " or ".join(sorted(allowed))
        return Denial(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{method} is for the role {wanted}, and the credential is of role {role}",
        )


def authorization_of(header: str) -> str:
    """Return the secret of an `Authorization` header; empty if it has none."""
    return header.removeprefix(_BEARER) if header.startswith(_BEARER) else ""


def _secret_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    for key, value in metadata:
        if key == AUTHORIZATION and isinstance(value, str):
            return authorization_of(value)
    return ""


def _identity_of(auth_context: Mapping[str, Sequence[bytes]]) -> tuple[Role | None, str]:
    """Return role and `RELEASE.NAMESPACE` of a certificate; None and empty if it names none."""
    for name in auth_context.get("x509_subject_alternative_name", ()):
        labels = name.decode("ascii", "replace")
        first, _, release = labels.removesuffix(_ROLE_DOMAIN).partition(".")
        if labels.endswith(_ROLE_DOMAIN) and first in set(Role) and release:
            return Role(first), release
    return None, ""


def token_file(given: str | None) -> str | None:
    """Return the token file: the one that is given, or the environment's; None without."""
    return given or os.environ.get(TOKEN_FILE_VARIABLE) or None


def is_local(address: str) -> bool:
    """Return whether `host:port` or `unix:PATH` is reached from this machine only."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    return host == "localhost" or host == "::1" or host.startswith("127.")


def check_exposure(address: str, credentials: Credentials, insecure: bool, option: str) -> None:
    """Check that an address beyond this machine has a credential.

    Args:
        address: `host:port` or `unix:PATH`, to listen on.
        credentials: this process's.
        insecure: `--insecure` was given.
        option: what names the address, such as `--listen`.

    Raises:
        SeedbedError: CONFIG, every client that reaches the address would be served.
    """
    protected = credentials.tokens is not None or credentials.tls is not None
    if insecure and protected:
        raise SeedbedError(
            ExitCode.CONFIG, "--insecure contradicts --token-file and --tls: leave one of them out"
        )
    if not (is_local(address) or protected or insecure):
        raise SeedbedError(
            ExitCode.CONFIG,
            f"{option} {address} is beyond this machine, and every client that reaches it would be "
            "served: give --token-file (`seedbed tokens DIR` makes the files) or --tls, or "
            "--insecure on a network that only trusted processes reach (docs/security.md)",
        )
