"""New authorities for a cluster, as k3s' own script makes them: an intermediate CA, a new root, the same signed by the old root,
and the old root."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from remuda.kube import certificates
from remuda.kube.certificates import DAY
from remuda.kube.clock import Clock, Entropy
from remuda.lab.distro.pki.authorities import CAS, SERVICE_KEY, Authorities, Files


def signed(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    clock: Clock,
    *,
    ca: bool = True,
) -> x509.Certificate:
    now = datetime.datetime.fromtimestamp(int(clock.time()) - 60, datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(certificates.subject(name)).issuer_name(issuer)
    builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(seconds=3650 * DAY))
    builder = builder.add_extension(x509.BasicConstraints(ca, None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key()), critical=False)
    return builder.sign(by, SHA256())


def cross_signed(old: Authorities, clock: Clock, entropy: Entropy) -> Files:
    """For each CA; and a new key for tokens, with the old one behind it."""
    files: Files = {}
    for name in CAS:
        before = old.ca(name)
        root_key, key = certificates.new_key(entropy), certificates.new_key(entropy)
        root_name = certificates.subject(f"new-{name.replace('/', '-')}-root")
        chain = (
            signed(f"new-{name.replace('/', '-')}", key, root_name, root_key, clock),
            signed(f"new-{name.replace('/', '-')}-root", root_key, root_name, root_key, clock),
            signed(f"new-{name.replace('/', '-')}-root", root_key, before.certificate.subject, before.key, clock),
            before.certificate,
        )
        files[f"tls/{name}.crt"] = b"".join(map(certificates.certificate_pem, chain))
        files[f"tls/{name}.key"] = certificates.key_pem(key)
    files[SERVICE_KEY] = certificates.new_key_pem(entropy) + old.service_key
    return files
