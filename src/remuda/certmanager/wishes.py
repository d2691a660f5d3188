"""The content of a Certificate's spec, validated: what its key and its certificate should be."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from remuda.kube.duration import parse_go_duration
from remuda.kube.objects import dig

Obj = dict[str, Any]

_NANOSECONDS: Final = 10**9
_DURATION: Final = 90 * 86_400
_SHORTEST: Final = 3600
_LATEST: Final = 300
RSA, ECDSA, ED25519 = "RSA", "ECDSA", "Ed25519"
_SIZES: Final[Mapping[str, tuple[int, ...]]] = {ECDSA: (256, 384, 521), RSA: (2048, 3072, 4096), ED25519: (0,)}
# Bits of the key usage extension, then extended usages.
KEY_USAGES: Final[Mapping[str, str]] = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "data encipherment": "data_encipherment",
    "key agreement": "key_agreement",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
}
EXTENDED_USAGES: Final[Mapping[str, str]] = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
}
_DEFAULT_USAGES: Final = ("digital signature", "key encipherment")


class InvalidSpec(Exception):
    """A field of a Certificate that can't be used; the text begins with its path."""


@dataclass(frozen=True, slots=True)
class CertificateWish:
    """`seconds` is the life of a certificate, `early` how long before its end it is renewed. `subject` has pairs of an X.509
    attribute and its value."""

    common_name: str
    subject: tuple[tuple[str, str], ...]
    dns_names: tuple[str, ...]
    ip_addresses: tuple[str, ...]
    uris: tuple[str, ...]
    authority: bool
    key_usages: frozenset[str]
    extended_usages: tuple[str, ...]
    seconds: int
    early: int
    algorithm: str
    size: int
    pkcs8: bool
    keeps_key: bool


def wish_of(spec: Obj) -> CertificateWish:
    """Raises InvalidSpec."""
    seconds = _seconds(spec, "duration", _DURATION)
    if seconds < _SHORTEST:
        raise InvalidSpec("spec.duration: must be an hour or more")
    early = _seconds(spec, "renewBefore", seconds // 3)
    if not _LATEST <= early < seconds:
        raise InvalidSpec("spec.renewBefore: must be five minutes or more, and less than spec.duration")
    algorithm, size = _key_of(spec)
    usages = tuple(spec.get("usages") or _DEFAULT_USAGES)
    if unknown := [each for each in usages if each not in KEY_USAGES and each not in EXTENDED_USAGES]:
        raise InvalidSpec(f"spec.usages: {unknown[0]!r} is not supported")
    authority = spec.get("isCA") is True
    names = tuple(tuple(spec.get(field) or ()) for field in ("dnsNames", "ipAddresses", "uris"))
    if not spec.get("commonName") and not any(names):
        raise InvalidSpec("spec: one of commonName, dnsNames, ipAddresses and uris must be set")
    return CertificateWish(
        common_name=spec.get("commonName") or "",
        subject=_subject(spec),
        dns_names=names[0],
        ip_addresses=tuple(_address(each) for each in names[1]),
        uris=names[2],
        authority=authority,
        key_usages=frozenset(KEY_USAGES[each] for each in usages if each in KEY_USAGES)
        | frozenset({"key_cert_sign"} if authority else ()),
        extended_usages=tuple(dict.fromkeys(EXTENDED_USAGES[each] for each in usages if each in EXTENDED_USAGES)),
        seconds=seconds,
        early=early,
        algorithm=algorithm,
        size=size,
        pkcs8=dig(spec, "privateKey", "encoding") == "PKCS8",
        keeps_key=dig(spec, "privateKey", "rotationPolicy") == "Never",
    )


def _seconds(spec: Obj, field: str, default: int) -> int:
    text = spec.get(field)
    if not text:
        return default
    found = parse_go_duration(str(text))
    if found is None:
        raise InvalidSpec(f"spec.{field}: {text!r} is not a duration, such as 2160h")
    return found // _NANOSECONDS


def _key_of(spec: Obj) -> tuple[str, int]:
    algorithm = str(dig(spec, "privateKey", "algorithm") or ECDSA)
    sizes = _SIZES.get(algorithm)
    if sizes is None:
        raise InvalidSpec(f"spec.privateKey.algorithm: must be one of {', '.join(_SIZES)}")
    size = dig(spec, "privateKey", "size") or sizes[0]
    if algorithm != ED25519 and size not in sizes:
        raise InvalidSpec(f"spec.privateKey.size: must be one of {', '.join(map(str, sizes))} for {algorithm}")
    return algorithm, sizes[0] if algorithm == ED25519 else size


_ATTRIBUTES = {
    "countries": "C",
    "provinces": "ST",
    "localities": "L",
    "organizations": "O",
    "organizationalUnits": "OU",
}


def _subject(spec: Obj) -> tuple[tuple[str, str], ...]:
    subject = spec.get("subject") or {}
    return tuple((short, str(value)) for field, short in _ATTRIBUTES.items() for value in subject.get(field) or ())


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InvalidSpec(f"spec.ipAddresses: {text!r} is not an IP address") from None
