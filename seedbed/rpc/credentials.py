"""Credentials of calls: tokens and certificates, and the methods that each role may call.

docs/security.md has the table of roles and methods.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import NamedTuple

import grpc

from seedbed.rpc.tls import Tls
from seedbed.runtime.exit_codes import ConfigError
from seedbed.runtime.tokens import (
    AUTHORIZATION,
    BEARER,
    RANK_KEY_FILE_VARIABLE,
    TOKEN_FILE_VARIABLE,
    Caller,
    Role,
    Tokens,
    authorization_of,
    rank_key_file,
)

# Last label of a certificate's DNS name that states a role.
_ROLE_DOMAIN = ".seedbed"

_LEARNERS = frozenset({Role.LEARNER})
# Methods between the learners of a run, each of which has a rank.
_OF_PEERS = "/seedbed.v1.Gossip/"
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
    "/seedbed.v1.Gossip/Accumulate": _LEARNERS,
}


class Denial(NamedTuple):
    """Status with which a call is refused."""

    code: grpc.StatusCode
    message: str


@dataclass(frozen=True)
class Credentials:
    """Credentials of a process, with which it calls others and judges calls.

    Attributes:
        role: role of this process.
        tokens: tokens; None: calls carry none, and none is demanded.
        tls: certificates; None: connections are not encrypted.
        release: `RELEASE.NAMESPACE` that a peer's certificate must name; empty: any.
        insecure: every client is served, beyond this machine too.
        rank: rank of this learner, towards its peers; None: no peers are called or served.
    """

    role: Role
    tokens: Tokens | None = None
    tls: Tls | None = None
    release: str = ""
    insecure: bool = False
    rank: int | None = None

    @property
    def is_demanding(self) -> bool:
        """Return whether a call needs a token or a certificate."""
        return self.tokens is not None or self.tls is not None

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata that each call of this process carries."""
        if self.tokens is None:
            return ()
        rank = self.rank if self.tokens.has_ranks else None
        return ((AUTHORIZATION, BEARER + self.tokens.secret(self.role, rank)),)

    def of_rank(self, rank: int) -> "Credentials":
        """Return the credentials with which a learner calls its peers, and judges their calls.

        The key of its rank, of its token file or of the file that `RANK_KEY_FILE_VARIABLE` names,
        is demanded of each peer as soon as there is one.

        Args:
            rank: rank of this learner.

        Raises:
            SeedbedError: CONFIG, there are keys of ranks, and none of this one.
        """
        own = rank_key_file()
        paths = [*(self.tokens.paths if self.tokens else ()), *([own] if own else ())]
        if not paths:
            return self
        tokens = Tokens(*paths)
        if tokens.has_ranks:
            tokens.secret(self.role, rank)  # missing: it is told at the start
        return replace(self, tokens=tokens, rank=rank)

    def rank_of(self, metadata: Iterable[tuple[str, str | bytes]]) -> int | None:
        """Return the rank whose key a call has; None where keys of ranks are not in use."""
        caller = self.tokens and self.tokens.caller_of(_secret_of(metadata))
        return caller.rank if caller else None

    def judge(
        self,
        method: str,
        metadata: Iterable[tuple[str, str | bytes]],
        auth_context: Mapping[str, Sequence[bytes]],
    ) -> Caller | Denial:
        """Return whose call it is, or why it is refused.

        Args:
            method: full name, such as `/seedbed.v1.Inference/Act`.
            metadata: the call's initial metadata.
            auth_context: the connection's, as gRPC gives it; empty without TLS.
        """
        allowed = MAY_CALL.get(method)
        if allowed is None:
            return Denial(grpc.StatusCode.PERMISSION_DENIED, f"{method} has no role")
        if not self.is_demanding:
            return Caller(None)
        role: Role | None = None
        rank: int | None = None
        if self.tokens is not None:
            caller = self.tokens.caller_of(_secret_of(metadata))
            if caller is None:
                return Denial(
                    grpc.StatusCode.UNAUTHENTICATED,
                    "a token of this release is required: give the client --token-file, or "
                    f"{TOKEN_FILE_VARIABLE} (docs/security.md)",
                )
            role, rank = caller
            if rank is None and method.startswith(_OF_PEERS) and self.tokens.has_ranks:
                return Denial(
                    grpc.StatusCode.PERMISSION_DENIED,
                    f"{method} needs the key of a learner's rank, and the token is of role {role}: "
                    f"give the learner {RANK_KEY_FILE_VARIABLE}, or a token file with a line "
                    "learner-RANK (docs/security.md)",
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
            return Caller(role, rank)
        wanted = " or ".join(sorted(allowed))
        return Denial(
            grpc.StatusCode.PERMISSION_DENIED,
            f"{method} is for the role {wanted}, and the credential is of role {role}",
        )


# Plain text without tokens, as every process has by default on its own machine.
PLAIN = Credentials(Role.LEARNER)


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


def is_local(address: str) -> bool:
    """Return whether `host:port` or `unix:PATH` is reached from this machine only."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name
        return False


def check_exposure(address: str, credentials: Credentials, option: str) -> None:
    """Check that an address beyond this machine has a credential.

    Args:
        address: `host:port` or `unix:PATH`, to listen on.
        credentials: this process's.
        option: what names the address, such as `--listen`.

    Raises:
        SeedbedError: CONFIG, every client that reaches the address would be served.
    """
    if not re.fullmatch(r"unix:.+|.*:\d+", address):
        raise ConfigError(f"{option} {address} is no address: give host:port or unix:PATH")
    protected = credentials.is_demanding
    if credentials.insecure and protected:
        raise ConfigError("--insecure contradicts --token-file and --tls: leave one of them out")
    if not (is_local(address) or protected or credentials.insecure):
        raise ConfigError(
            f"{option} {address} is beyond this machine, and every client that reaches it would be "
            "served: give --token-file (`seedbed tokens DIR` makes the files) or --tls, or "
            "--insecure on a network that only trusted processes reach (docs/security.md)"
        )
