"""The conversion part of a CRD: a strategy, and for webhooks where and how to call them."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from cryptography import x509

from remuda.kube import names as rules
from remuda.kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required

from ..registry.webhook_addresses import service_errors, url_errors
from .conditions import is_established
from .internal_version import Obj, dict_of, list_of
from .schema_rules import Options

Errors = list[FieldError]

REVIEW_VERSIONS = ("v1", "v1beta1")


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
