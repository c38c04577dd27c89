"""Credentials of each role in a storm, right and wrong ones, and the status that each must get.

The rules are read off docs/security.md, not off the code under test.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import grpc

from seedbed.rpc.credentials import Credentials
from seedbed.rpc.tls import Tls
from seedbed.runtime.tokens import Role, Tokens, new_token_files
from tests.support.private_files import write_private

RELEASE = "storm.lab"
RANKS = 3  # learners that have keys, in the release `ranked`
ACTOR, LEARNER, SHARD, OBSERVER = Role.ACTOR, Role.LEARNER, Role.SHARD, Role.OBSERVER
# The table of docs/security.md.
CALLERS = {
    "Act": {ACTOR},
    "Insert": {LEARNER},
    "Sample": {LEARNER},
    "Prioritize": {LEARNER},
    "GetState": {LEARNER, OBSERVER},
    "Push": {LEARNER},
    "Fetch": {LEARNER},
    "Reduce": {LEARNER},
    "Accumulate": {LEARNER},
}
# Roles whose token the file of a process has, its own first.
KNOWN = {LEARNER: {LEARNER, ACTOR, OBSERVER}, SHARD: {SHARD, LEARNER, OBSERVER}}
_NO_ROLE = grpc.StatusCode.UNAUTHENTICATED
_WRONG_ROLE = grpc.StatusCode.PERMISSION_DENIED


class Caller(NamedTuple):
    """A client of a method.

    Attributes:
        credentials: what it shows.
        refusal: status of each of its calls; None where they are served.
    """

    credentials: Credentials
    refusal: grpc.StatusCode | None


class RoleFiles:
    """Token files and certificates of each role, as `seedbed tokens` and OpenSSL make them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for release, learners in (("this", 0), ("another", 0), ("ranked", RANKS)):
            (folder / release).mkdir(parents=True)
            for name, text in new_token_files(learners).items():
                write_private(folder / release / name, text)
        self._make_certificates()

    def _make_certificates(self) -> None:
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        of_authority = ("-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=authority")
        subprocess.run(
            [*make.split(), *of_authority], cwd=self._folder, check=True, capture_output=True
        )
        for role in Role:
            folder = self._folder / f"tls-{role}"
            folder.mkdir()
            names = f"DNS:{role}.{RELEASE}.seedbed,DNS:localhost,IP:127.0.0.1"
            words = f"-CA ca.crt -CAkey ca.key -subj /CN={role} -addext subjectAltName={names}"
            words += f" -keyout tls-{role}/tls.key -out tls-{role}/tls.crt"
            words += " -addext basicConstraints=critical,CA:FALSE"
            subprocess.run(
                [*make.split(), *words.split()], cwd=self._folder, check=True, capture_output=True
            )
            shutil.copy(self._folder / "ca.crt", folder)

    def options(
        self, role: Role, tls: bool, release: str = "this", rank: int | None = None
    ) -> tuple[str, ...]:
        """Return the options of a command of a role, or of a learner that has a rank."""
        options = ("--token-file", str(self._file(role, release, rank)))
        if tls:
            options += ("--tls", str(self._folder / f"tls-{role}"), "--tls-release", RELEASE)
        return options

    def _file(self, role: Role, release: str, rank: int | None) -> Path:
        return self._folder / release / (role if rank is None else f"{role}-{rank}")

    def credentials(
        self,
        token: Role | None,
        certificate: Role | None,
        release: str = "this",
        rank: int | None = None,
    ) -> Credentials:
        """Return the credentials of a token and a certificate, of the same role or not."""
        tokens = None if token is None else Tokens(self._file(token, release, rank))
        tls = None if certificate is None else Tls(self._folder / f"tls-{certificate}")
        return Credentials(token or LEARNER, tokens, tls, rank=rank)

    def callers(self, server: Role, method: str, tls: bool) -> list[Caller]:
        """Return all kinds of clients of a method, those that are served first.

        Args:
            server: role of the process that serves it.
            method: full name.
            tls: whether the connection is encrypted, so that certificates count.
        """
        allowed = CALLERS[method.rsplit("/", 1)[1]]
        first = min(allowed)
        made = [Caller(self.credentials(role, role if tls else None), None) for role in allowed]
        for role in set(Role) - allowed:
            code = _WRONG_ROLE if role in KNOWN[server] else _NO_ROLE
            made.append(Caller(self.credentials(role, role if tls else None), code))
            if tls:
                made.append(Caller(self.credentials(first, role), _WRONG_ROLE))
        certificate = first if tls else None
        made.append(Caller(self.credentials(None, certificate), _NO_ROLE))
        made.append(Caller(self.credentials(first, certificate, "another"), _NO_ROLE))
        return made
