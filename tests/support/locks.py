"""What requirements/*.lock pin."""

from __future__ import annotations

import re
from functools import cache

from tests.support.source_imports import ROOT


@cache
def lock(name: str) -> dict[str, str]:
    """Versions by package. Fails on a package without a hash and on any other option."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text().replace("\\\n", " ")
    versions = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = re.fullmatch(r"([a-z0-9.-]+)==(\S+)((?: +--hash=sha256:[0-9a-f]{64})+) *", line)
        assert match, f"requirements/{name}.lock: not a pinned package with hashes: {line[:100]}"
        versions[match[1]] = match[2]
    return versions
