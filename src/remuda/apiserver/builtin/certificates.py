"""certificates.k8s.io: signing requests."""

from __future__ import annotations

import base64
from collections.abc import Callable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from remuda.kube import names
from remuda.kube.duration import human_duration
from remuda.kube.errors import duplicate, forbidden_field, go_quote, invalid_value, not_supported, required, too_long

from ..registry.strategy import AGE, NAME, NONE, Strategy, at, column
from . import checks
from .checks import Errors, Obj, sub

_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
    "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
    "server auth", "signing", "timestamping",
)  # fmt: skip
_FINAL = ("Approved", "Denied", "Failed")


def signer_errors(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    segments = name.split("/")
    if len(segments) != 2:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid_value(path, name, why)]
    domain, rest = segments
    errors: Errors = [too_long(path, 253)] if len(domain) > 253 else []
    errors += _label_errors(domain, names.dns_label_problems, path)
    if "." not in domain:
        errors.append(invalid_value(path, domain, "should be a domain with at least two segments separated by dots"))
    return errors + _label_errors(rest, names.dns_subdomain_problems, path)


def _label_errors(text: str, problems: Callable[[str], list[str]], path: str) -> Errors:
    """The errors of the first invalid label of `text`."""
    for label in text.split("."):
        found = problems(label)
        if found:
            return [invalid_value(path, text, f"validating label {go_quote(label)}: {why}") for why in found]
    return []


def _request_problem(encoded: str) -> str:
    try:
        pem = base64.b64decode(encoded)
    except ValueError:
        pem = b""
    if b"-----BEGIN CERTIFICATE REQUEST-----" not in pem:
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_pem_x509_csr(pem)
        return "" if request.is_signature_valid else "x509: signature verification failed"
    except (ValueError, UnsupportedAlgorithm):
        return "asn1: structure error"


def _validate(obj: Obj) -> Errors:
    spec = sub(obj, "spec")
    errors = checks.meta_errors(obj, False, lambda name, prefix: [])
    problem = _request_problem(spec.get("request") or "")
    if problem:
        errors.append(invalid_value("spec.request", spec.get("request"), problem))
    usages = spec.get("usages") or []
    if not usages:
        errors.append(required("spec.usages"))
    errors += [not_supported(f"spec.usages[{i}]", each, _USAGES) for i, each in enumerate(usages) if each not in _USAGES]
    errors += [duplicate(f"spec.usages[{i}]", each) for i, each in enumerate(usages) if each in usages[:i]]
    signer = spec.get("signerName") or ""
    if signer == "kubernetes.io/legacy-unknown":
        why = "the legacy signerName is not allowed via this API version"
        errors.append(invalid_value("spec.signerName", signer, why))
    else:
        errors += signer_errors(signer, "spec.signerName")
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < 600:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        errors.append(invalid_value("spec.expirationSeconds", seconds, why))
    return errors + _condition_errors(sub(obj, "status").get("conditions") or [])


def _condition_errors(conditions: list[Obj]) -> Errors:
    path = "status.conditions"
    errors: Errors = []
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        kind, status = condition.get("type") or "", condition.get("status") or ""
        if not kind:
            errors.append(required(f"{path}[{index}].type"))
        allowed = ("True",) if kind in _FINAL else ("False", "True", "Unknown")
        errors += checks.supported(status, allowed, f"{path}[{index}].status")
        other = {"Approved": "Denied", "Denied": "Approved"}.get(kind)
        if other in seen:
            errors.append(invalid_value(path, kind, "Approved and Denied conditions are mutually exclusive"))
        if kind in seen:
            errors.append(duplicate(f"{path}[{index}].type", kind))
        seen.add(kind)
    return errors


def _of(obj: Obj, kind: str) -> list[Obj]:
    return [each for each in sub(obj, "status").get("conditions") or () if each.get("type") == kind]


def _change_errors(obj: Obj, old: Obj, *, certificate: bool) -> Errors:
    errors = _validate(obj)
    path = "status.conditions"
    for kind in _FINAL:
        if len(_of(obj, kind)) < len(_of(old, kind)):
            errors.append(forbidden_field(path, f'updates may not remove a condition of type "{kind}"'))
    for kind in ("Approved", "Denied"):
        if len(_of(obj, kind)) > len(_of(old, kind)):
            errors.append(forbidden_field(path, f'updates may not add a condition of type "{kind}"'))
    if sub(obj, "status").get("certificate") != sub(old, "status").get("certificate"):
        if not certificate:
            errors.append(forbidden_field("status.certificate", "updates may not set certificate content"))
        elif sub(old, "status").get("certificate"):
            why = "updates may not modify existing certificate content"
            errors.append(forbidden_field("status.certificate", why))
    return errors + checks.meta_update_errors(obj, old)


def _prepare_for_update(obj: Obj, old: Obj) -> None:
    checks.keep_spec(obj, old)
    checks.keep_status(obj, old)


def _condition(obj: Obj) -> str:
    word = "Denied" if _of(obj, "Denied") else "Approved" if _of(obj, "Approved") else "Pending"
    word += ",Failed" if _of(obj, "Failed") else ""
    return word + (",Issued" if sub(obj, "status").get("certificate") else "")


def _requested(obj: Obj) -> str:
    seconds = sub(obj, "spec").get("expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


SIGNING_REQUEST = Strategy(
    prepare_for_create=checks.drop_status,
    validate=_validate,
    prepare_for_update=_prepare_for_update,
    validate_update=lambda obj, old: _change_errors(obj, old, certificate=False),
    prepare_for_status_update=checks.keep_spec,
    validate_status_update=lambda obj, old: _change_errors(obj, old, certificate=True),
    name_problems=lambda name, prefix: names.path_segment_problems(name),
    fields=lambda obj: {"spec.signerName": sub(obj, "spec").get("signerName") or ""},
    field_names=frozenset(("spec.signerName",)),
    columns=(
        NAME,
        AGE,
        column("SignerName", at("spec", "signerName", default=NONE), "Who is asked to sign."),
        column("Requestor", at("spec", "username"), "Who asks."),
        column("RequestedDuration", _requested, "How long it should be valid."),
        column("Condition", _condition, "What became of it."),
    ),
)
