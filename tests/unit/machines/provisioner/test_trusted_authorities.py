"""Which authorities the program trusts where it runs in a pod."""

from __future__ import annotations

import ssl
from pathlib import Path

from remuda.machines.provisioner.program import trusted
from tests.unit.certificates import certificate


def test_what_lies_beside_a_pod_is_trusted_as_the_system_is(tmp_path: Path) -> None:
    system, _ = certificate(tmp_path, "system")
    theirs, _ = certificate(tmp_path, "theirs")
    given = tmp_path / "given"
    given.mkdir()
    (given / "tls.crt").write_bytes(theirs.read_bytes().rstrip())
    (given / "notes.txt").write_text("nothing")
    with trusted({"SSL_CERT_DIR": str(given), "SSL_CERT_FILE": str(system)}) as found:
        assert found["SSL_CERT_FILE"] == found["AWS_CA_BUNDLE"]
        context = ssl.create_default_context(cafile=found["AWS_CA_BUNDLE"])
        assert context.cert_store_stats()["x509"] == 2
    assert not Path(found["SSL_CERT_FILE"]).exists()


def test_without_any_nothing_is_changed(tmp_path: Path) -> None:
    for environ in ({}, {"SSL_CERT_DIR": str(tmp_path)}, {"SSL_CERT_DIR": str(tmp_path / "missing")}):
        with trusted(environ) as found:
            assert found == {}
