"""Validation of scale paths, printer columns, selectable fields and conversion of a CRD."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from cryptography import x509

from remuda.kube import names as rules
from remuda.kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required, too_many

from ..webhook_client import service_errors, url_errors
from . import structural
from .conditions import is_established
from .internal_version import Internal, Obj, dict_of, list_of, schema_of, shown_text
from .schema_rules import SchemaChecks
from .structural import conversion_problem

Errors = list[FieldError]

COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
MAX_SELECTABLE_FIELDS = 8


def _simple_path_errors(value: str, path: str) -> Errors:
    if not value.startswith("."):
        return [invalid_value(path, value, "must be a simple json path starting with .")]
    return []


def subresource_errors(subresources: Any, path: str) -> Errors:
    scale = dict_of(subresources).get("scale")
    if not isinstance(scale, dict):
        return []
    errors: Errors = []
    for field, start in (("specReplicasPath", ".spec"), ("statusReplicasPath", ".status")):
        value, at = scale.get(field) or "", f"{path}.scale.{field}"
        if not value:
            errors.append(required(at))
        elif found := _simple_path_errors(value, at):
            errors += found
        elif not value.startswith(f"{start}."):
            errors.append(invalid_value(at, value, f"should be a json path under {start}"))
    value, at = scale.get("labelSelectorPath") or "", f"{path}.scale.labelSelectorPath"
    if value:
        found = _simple_path_errors(value, at)
        if not found and not value.startswith((".spec.", ".status.")):
            found = [invalid_value(at, shown_text(value), "should be a json path under either .spec or .status")]
        errors += found
    return errors


def column_errors(column: Obj, path: str) -> Errors:
    errors: Errors = []
    if not column.get("name"):
        errors.append(required(f"{path}.name"))
    kind, why = column.get("type") or "", f"must be one of {','.join(COLUMN_TYPES)}"
    if not kind:
        errors.append(required(f"{path}.type", why))
    elif kind not in COLUMN_TYPES:
        errors.append(invalid_value(f"{path}.type", kind, why))
    shown = column.get("format") or ""
    if shown and shown not in COLUMN_FORMATS:
        errors.append(invalid_value(f"{path}.format", shown, f"must be one of {','.join(COLUMN_FORMATS)}"))
    where = column.get("jsonPath") or ""
    if not where:
        errors.append(required(f"{path}.JSONPath"))
    else:
        errors += _simple_path_errors(where, f"{path}.JSONPath")
    return errors


def top_selectable_errors(form: Internal, options: SchemaChecks) -> Errors:
    if form.validation is None:
        why = "may only be set when validations.schema is included"
        return [invalid_value("spec.selectableFields", "", why)]
    schema = schema_of(form.validation) or {}
    if problem := conversion_problem(schema):
        unreadable = invalid_value("spec.schema.openAPIV3Schema", "", problem)
        return [unreadable, *unreadable_selectable_errors(form.selectable, "spec.selectableFields")]
    return selectable_errors(form.selectable, schema, "spec.selectableFields", options, "")


def unreadable_selectable_errors(fields: list[Any], path: str) -> Errors:
    """The errors about selectable fields that need no schema, for a schema that can't be read."""
    errors: Errors = []
    for index, each in enumerate(fields):
        where = dict_of(each).get("jsonPath") or ""
        if not where:
            errors.append(required(f"{path}[{index}].jsonPath"))
        elif where[0] not in ".[":
            try:
                structural.resolve(where, {})
            except structural.PathError as error:
                errors.append(invalid_value(f"{path}[{index}].jsonPath", where, f"is an invalid path: {error}"))
    return errors


def selectable_errors(fields: list[Any], schema: Obj, path: str, options: SchemaChecks, version: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, each in enumerate(fields):
        at = f"{path}[{index}].jsonPath"
        where = dict_of(each).get("jsonPath") or ""
        if not where:
            errors.append(required(at))
            continue
        try:
            found, target = structural.resolve(where, schema, allow_brackets=False)
        except structural.PathError as error:
            errors.append(invalid_value(at, where, f"is an invalid path: {error}"))
            continue
        if found.partition(".")[0].partition("[")[0] == "metadata":
            errors.append(invalid_value(at, where, "must not point to fields in metadata"))
        if dict_of(target).get("type") not in ("string", "boolean", "integer"):
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            errors.append(invalid_value(at, where, why))
        if found in seen:
            errors.append(duplicate(at, where))
        seen.add(found)
    if len(seen) > MAX_SELECTABLE_FIELDS and version not in options.too_many_selectable_ok:
        errors.append(too_many(path, len(seen), MAX_SELECTABLE_FIELDS))
    return errors


# --- conversion rules -----------------------------------------------------------------------------------------------------
#
# The conversion part of a CRD: a strategy, and for webhooks where and how to call them.

REVIEW_VERSIONS = ("v1", "v1beta1")


def conversion_errors(conversion: Any, options: SchemaChecks) -> Errors:
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


def _client_config_errors(config: Obj, path: str, options: SchemaChecks) -> Errors:
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
    """A caBundle (base64 of PEM, as in JSON) holds certificates."""
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
    """A bundle that was already invalid may stay, and a CRD that is not serving yet needs no valid one."""
    if not is_established(old):
        return True
    bundle = _bundle_of(old)
    return bool(bundle) and not ca_bundle_ok(bundle)
