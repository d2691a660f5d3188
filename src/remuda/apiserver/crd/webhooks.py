"""The conversion part of a CRD: a strategy, and for webhooks where and how to call them."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509

from remuda.kube import names as rules
from remuda.kube.errors import FieldError, forbidden_field, go_quote, invalid_value, not_supported, required

from .conditions import is_established
from .schemarules import Options
from .shapes import Obj, dict_of, list_of

Errors = list[FieldError]

REVIEW_VERSIONS = ("v1", "v1beta1")
_FORM = "; desired format: https://host[/path]"


def conversion_errors(conversion: Any, options: Options) -> Errors:
    if not isinstance(conversion, dict):
        return []
    path = "spec.conversion"
    strategy = conversion.get("strategy") or ""
    errors: Errors = []
    if not strategy:
        errors.append(required(f"{path}.strategy"))
    elif strategy not in ("None", "Webhook"):
        errors.append(not_supported(f"{path}.strategy", strategy, ("None", "Webhook")))
    webhook = dict_of(conversion.get("webhook"))
    config = webhook.get("clientConfig")
    reviews = list_of(webhook.get("conversionReviewVersions"))
    if strategy != "Webhook":
        why = "should not be set when strategy is not set to Webhook"
        if config is not None:
            errors.append(forbidden_field(f"{path}.webhookClientConfig", why))
        if reviews:
            errors.append(forbidden_field(f"{path}.conversionReviewVersions", why))
        return errors
    if not isinstance(config, dict):
        errors.append(required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        errors += _client_config_errors(config, f"{path}.webhookClientConfig", options)
    return errors + _review_errors(reviews, f"{path}.conversionReviewVersions", options.recognised_review_versions)


def _client_config_errors(config: Obj, path: str, options: Options) -> Errors:
    url, service = config.get("url"), config.get("service")
    errors: Errors = []
    if (url is None) == (service is None):
        errors.append(required(path, "exactly one of url or service is required"))
    elif url is not None:
        errors += url_errors(url, f"{path}.url")
    else:
        errors += service_errors(dict_of(service), f"{path}.service")
    bundle = config.get("caBundle")
    if bundle and not options.invalid_ca_bundle_ok and not ca_bundle_ok(bundle):
        why = "unable to load root certificates: unable to parse bytes as PEM block"
        errors.append(invalid_value(f"{path}.caBundle", bundle, why))
    return errors


def url_errors(url: str, path: str) -> Errors:
    try:
        parts = urlsplit(url)
        if re.search(r"[\x00-\x20\x7f]", url.partition("?")[0]):
            raise ValueError("invalid character")
    except ValueError:
        why = f"url must be a valid URL: parse {go_quote(url)}: invalid URL{_FORM}"
        return [required(path, why)]
    errors: Errors = []
    if parts.scheme != "https":
        errors.append(invalid_value(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}"))
    user, at, host = parts.netloc.rpartition("@")
    if not host:
        errors.append(invalid_value(path, "", f"host must be specified{_FORM}"))
    if at:
        errors.append(invalid_value(path, user, "user information is not permitted in the URL"))
    if parts.fragment:
        errors.append(invalid_value(path, parts.fragment, "fragments are not permitted in the URL"))
    if parts.query:
        errors.append(invalid_value(path, parts.query, "query parameters are not permitted in the URL"))
    return errors


def service_errors(service: Obj, path: str) -> Errors:
    # kube-apiserver hands name and namespace over in the wrong order here; the errors name the other field.
    namespace, name = service.get("name") or "", service.get("namespace") or ""
    errors: Errors = []
    if not name:
        errors.append(required(f"{path}.name"))
    if not namespace:
        errors.append(required(f"{path}.namespace"))
    port = service.get("port", 443)
    if not isinstance(port, int) or not 1 <= port <= 65535:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        errors.append(invalid_value(f"{path}.port", port, why))
    where = service.get("path")
    if where and where != "/":
        errors += _service_path_errors(where, f"{path}.path")
    return errors


def _service_path_errors(where: str, path: str) -> Errors:
    if where == "//":
        return [invalid_value(path, where, "segment[0] may not be empty")]
    errors: Errors = []
    if not where.startswith("/"):
        errors.append(invalid_value(path, where, "must start with a '/'"))
    for index, step in enumerate(where[1:].removesuffix("/").split("/")):
        if not step:
            errors.append(invalid_value(path, where, f"segment[{index}] may not be empty"))
            continue
        for problem in rules.dns_subdomain_problems(step):
            errors.append(invalid_value(path, where, f"segment[{index}]: {problem}"))
    return errors


def _review_errors(versions: list[Any], path: str, recognised: bool) -> Errors:
    if not versions:
        return [required(path)]
    errors: Errors = []
    seen: set[str] = set()
    for index, version in enumerate(versions):
        if version in seen:
            errors.append(invalid_value(f"{path}[{index}]", version, "duplicate version"))
            continue
        seen.add(version)
        errors += [invalid_value(f"{path}[{index}]", version, why) for why in rules.dns1035_label_problems(version)]
    if recognised and not seen & set(REVIEW_VERSIONS):
        errors.append(invalid_value(path, versions, f"must include at least one of {', '.join(REVIEW_VERSIONS)}"))
    return errors


def ca_bundle_ok(bundle: Any) -> bool:
    """Whether a caBundle (base64 of PEM, as it stands in JSON) holds certificates."""
    if not bundle:
        return True
    try:
        pem = base64.b64decode(bundle) if isinstance(bundle, str) else bytes(bundle)
        return bool(x509.load_pem_x509_certificates(pem))
    except (ValueError, TypeError, binascii.Error):
        return False


def _bundle_of(crd: Obj) -> Any:
    conversion = dict_of(dict_of(crd.get("spec")).get("conversion"))
    return dict_of(dict_of(conversion.get("webhook")).get("clientConfig")).get("caBundle")


def invalid_ca_bundle_ok(old: Obj) -> bool:
    """Nobody has to mend a bundle that was already broken, nor to have a good one before the CRD serves."""
    if not is_established(old):
        return True
    bundle = _bundle_of(old)
    return bool(bundle) and not ca_bundle_ok(bundle)


def has_broken_ca_bundle(crd: Obj) -> bool:
    return not ca_bundle_ok(_bundle_of(crd))
