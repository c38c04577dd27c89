"""The end of a certificate, exported from the file that is served."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from seedbed.rpc.certificate_stats import CertificateStats
from seedbed.runtime.metrics import StatsRegistry
from tests.rpc.test_tls import write

# UTCTime until 2049, GeneralizedTime from 2050.
ENDS = [datetime(2049, 12, 31, 23, 59, 58, tzinfo=UTC), datetime(2061, 2, 3, 4, 5, 6, tzinfo=UTC)]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: str(end.year))
def test_end_and_lifetime_are_the_certificates(tmp_path: Path, end: datetime) -> None:
    authority = trustme.CA()
    write(tmp_path, authority, "learner")
    leaf = authority.issue_cert("learner", not_after=end)
    (tmp_path / "tls.crt").write_bytes(leaf.cert_chain_pems[0].bytes())
    values = StatsRegistry(CertificateStats(tmp_path)).values()
    assert values["seedbed_certificate_expiry_timestamp_seconds"] == end.timestamp()
    begin = datetime(2000, 1, 1, tzinfo=UTC)
    lifetime = values["seedbed_certificate_lifetime_seconds"]
    assert lifetime == (end - begin).total_seconds()


def test_a_renewed_certificate_is_seen_and_a_torn_one_has_no_end(tmp_path: Path) -> None:
    authority = trustme.CA()
    write(tmp_path, authority, "learner")
    stats = CertificateStats(tmp_path)
    before = stats.expiry
    renewed = authority.issue_cert("learner", not_after=ENDS[1])
    (tmp_path / "tls.crt").write_bytes(renewed.cert_chain_pems[0].bytes())
    assert before != stats.expiry == ENDS[1].timestamp()
    for torn in (b"", renewed.cert_chain_pems[0].bytes()[:200], b"-----BEGIN CERTIFICATE-----\n"):
        (tmp_path / "tls.crt").write_bytes(torn)
        assert stats.expiry is None
        assert stats.lifetime is None
