"""PEM without a library: what is between the lines. Whether it is a good certificate is not asked here."""

from __future__ import annotations

import base64
import binascii
import re

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)


def certificates_in(pem: bytes) -> list[bytes]:
    """The certificates of a file as DER, in their order; what can't be read is left out."""
    found = []
    for body in _CERTIFICATE.findall(pem):
        try:
            found.append(base64.b64decode(b"".join(body.split()), validate=True))
        except binascii.Error:
            continue
    return found
