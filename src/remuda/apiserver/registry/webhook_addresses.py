"""The address of a webhook, a URL or a service: shared validation, in apiserver's own words.

Admission webhooks (:mod:`remuda.apiserver.builtin.admissionregistration`) and conversion webhooks
(:mod:`remuda.apiserver.crd.spec_rules`) share these rules; :mod:`remuda.apiserver.webhook_client` does the calling.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from remuda.kube import names
from remuda.kube.errors import FieldError, go_quote, invalid_value, required

Obj = dict[str, Any]
Errors = list[FieldError]

_FORM = "; desired format: https://host[/path]"


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
    # kube-apiserver passes name and namespace in the wrong order here; the errors name the other field.
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
        for problem in names.dns_subdomain_problems(step):
            errors.append(invalid_value(path, where, f"segment[{index}]: {problem}"))
    return errors
