"""Calling webhooks: one HTTP client for admission and conversion, with failures worded as Go's client words them.

People search for these texts, and tests of other projects match on them, so a refused connection reads
`Post "https://…": dial tcp 127.0.0.1:1: connect: connection refused` here too. Connections are kept and reused per
address and CA bundle; proxies in the environment are ignored, since a proxy between an API server and its webhooks is
almost never intended. `policy` decides on allowed addresses: webhooks are administrators' objects, and one on this
machine is usual. Requests and responses are made and read by :mod:`.admission.webhook_reviews` and
:mod:`.crd.conversion`.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import posixpath
import re
import ssl
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import aiohttp
from cryptography import x509
from yarl import URL

from remuda.kube import names
from remuda.kube.clock import Clock, deadline
from remuda.kube.encoding import jsonio, yamlio
from remuda.kube.errors import ApiError, FieldError, go_quote, invalid_value, required
from remuda.kube.network import outbound, outbound_http
from remuda.kube.objects import ObjectSource, dig, labels_of, name_of

from .limits import flow_control

Obj = dict[str, Any]

# A larger response is not a valid review.
MAX_RESPONSE = 16 * 1024 * 1024
MAX_CONNECTIONS = 100
_MAX_CONTEXTS = 200
_TEXT_SHOWN = 2048
_SLICE_OF: Final = "kubernetes.io/service-name"
_LONG = 256 * 1024


class CallError(Exception):
    """A webhook call that failed; `status` is set when the webhook answered with an error."""

    def __init__(self, message: str, status: ApiError | None = None) -> None:
        super().__init__(message)
        self.status = status


class ServiceResolver(Protocol):
    def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Host and port of the Service; CallError when it has none."""


class ServiceAddresses:
    """Services without a cluster network behind them: one is called at its external name, or at an address of its EndpointSlices.

    `targetPort` counts for an external name as well, so that a manager beside this server may listen at any port.
    """

    def __init__(self, source: ObjectSource | None = None) -> None:
        self._source = source

    def resolve(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        where = f'service "{name}" in namespace "{namespace}"'
        if self._source is not None:
            service = self._source.get("", "services", namespace, name)
            if service is None:
                raise CallError(f'service "{name}" not found')
            listed = self._source.list("discovery.k8s.io", "endpointslices", namespace)
            if (found := _address_of(service, listed, port)) is not None:
                return found
        raise CallError(
            f"{where} is not reachable from an embedded API server; set clientConfig.url instead, or give the service an "
            "external name or an EndpointSlice"
        )


def _address_of(service: Obj, slices: Iterable[Obj], port: int) -> tuple[str, int] | None:
    """Where the port of a Service can be reached; None if nothing says so."""
    spec = service.get("spec") or {}
    shown: Obj = next((each for each in spec.get("ports") or () if each.get("port") == port), {})
    if spec.get("type") == "ExternalName":
        target = shown.get("targetPort")
        return str(spec.get("externalName") or ""), target if isinstance(target, int) and target else port
    for each in slices:
        if labels_of(each).get(_SLICE_OF) != name_of(service):
            continue
        ports = (known.get("port") for known in each.get("ports") or () if (known.get("name") or "") == (shown.get("name") or ""))
        number = next((found for found in ports if found), None)
        ready = (known for known in each.get("endpoints") or () if dig(known, "conditions", "ready") is not False)
        address = next((known["addresses"][0] for known in ready if known.get("addresses")), None)
        if shown and number and address:
            return address, number
    return None


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """The address of a webhook: a URL, or a Service when `service` is set. Hashable, made once per configuration."""

    url: str  # as shown and requested, without a query
    ca_bundle: bytes
    service: tuple[str, str, int] | None = None  # namespace, name, port

    @classmethod
    def of(cls, config: Obj) -> WebhookEndpoint:
        """The endpoint of a `clientConfig`; ValueError when it names neither a URL nor a Service."""
        bundle = base64.b64decode(config.get("caBundle") or "")
        if not bundle.strip():
            bundle = b""
        if service := config.get("service"):
            namespace, name = service.get("namespace", ""), service.get("name", "")
            port = int(service.get("port") or 443)
            url = f"https://{name}.{namespace}.svc:{port}{_clean(service.get('path') or '')}"
            return cls(url, bundle, (namespace, name, port))
        if not config.get("url"):
            raise ValueError("webhook configuration must have either service or URL")
        parts = urlsplit(config["url"])
        return cls(f"{parts.scheme}://{parts.netloc}{_clean(parts.path)}", bundle)


def _clean(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


class WebhookClient:
    def __init__(self, clock: Clock, resolver: ServiceResolver | None = None) -> None:
        self._clock = clock
        self._resolver = resolver or ServiceAddresses()
        self.policy: outbound_http.Current = outbound.Policy.for_administrators
        self._session: aiohttp.ClientSession | None = None
        self._contexts: OrderedDict[bytes, ssl.SSLContext] = OrderedDict()

    async def post(self, endpoint: WebhookEndpoint, review: Obj, seconds: int) -> Obj:
        """Post a review as JSON and return the response's review. CallError for every failure."""
        shown = f"{endpoint.url}?timeout={seconds}s"
        try:
            async with flow_control.stepped_out(), deadline(self._clock, seconds):
                status, content_type, data = await self._exchange(endpoint, shown, jsonio.dumps(review))
        except TimeoutError:
            raise CallError(f"Post {go_quote(shown)}: context deadline exceeded") from None
        except CallError as error:
            raise CallError(f"Post {go_quote(shown)}: {error}") from None
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            # The URL library raises ValueError for an address that it can't parse, such as one with an invalid port.
            raise CallError(f"Post {go_quote(shown)}: {_go_words(error, endpoint)}") from None
        if not 200 <= status <= 206:
            raise _refused(status, content_type, data)
        if len(data) > _LONG:
            # Other requests don't wait while a long answer is parsed.
            return await asyncio.to_thread(_answer, status, content_type, data, review)
        return _answer(status, content_type, data, review)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _exchange(self, endpoint: WebhookEndpoint, url: str, data: bytes) -> tuple[int, str, bytes]:
        headers = {"Content-Type": "application/json", "Accept": "application/json, */*"}
        target = URL(url, encoded=True)
        server_name: str | None = None
        if endpoint.service is not None:
            headers["Host"] = f"{target.host}:{target.port}"
            server_name = target.host
            host, port = self._resolver.resolve(*endpoint.service)
            target = target.with_host(host).with_port(port)
        context = self._context(endpoint.ca_bundle) if target.scheme == "https" else True
        async with self._open().post(
            target, data=data, headers=headers, ssl=context, server_hostname=server_name, allow_redirects=False
        ) as response:
            content = bytearray()
            # In pieces: compressed data is never unpacked beyond the limit.
            async for piece in response.content.iter_any():
                content += piece
                if len(content) > MAX_RESPONSE:
                    raise CallError(f"response is larger than {MAX_RESPONSE} bytes")
            return response.status, response.headers.get("Content-Type", ""), bytes(content)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            # Per webhook: one that hangs takes no connection from the others.
            connector = outbound_http.connector(lambda: self.policy(), limit=0, limit_per_host=MAX_CONNECTIONS)
            # Deadlines are kept on the injected clock; aiohttp's own timers would read the wall clock.
            no_timeout = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)
            self._session = aiohttp.ClientSession(connector=connector, trust_env=False, timeout=no_timeout)
        return self._session

    def _context(self, bundle: bytes) -> ssl.SSLContext:
        context = self._contexts.get(bundle)
        if context is not None:
            self._contexts.move_to_end(bundle)
            return context
        if bundle:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            # A caBundle may pin an intermediate or the serving certificate itself, as Go allows.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            try:
                context.load_verify_locations(cadata=bundle.decode("ascii"))
            except (ssl.SSLError, ValueError):
                raise CallError("unable to load root certificates: unable to parse bytes as PEM block") from None
        else:
            context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._contexts[bundle] = context
        if len(self._contexts) > _MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return context


def _answer(status: int, content_type: str, data: bytes, review: Obj) -> Obj:
    if not data:
        raise CallError(f"0-length response with status code: {status} and content type: {content_type}")
    try:
        value = _parse(data)
    except ValueError as error:
        raise CallError(f"couldn't get version/kind; json parse error: {error}") from None
    if not isinstance(value, dict):
        raise CallError(no_object(value))
    wanted, kind = str(review["apiVersion"]), review["kind"]
    got = (str(value.get("apiVersion") or wanted), str(value.get("kind") or kind))
    if got == (wanted, kind):
        return value
    group, _, version = wanted.rpartition("/")
    known = {(f"{group}/v1", kind): f"v1.{kind}", (f"{group}/v1beta1", kind): f"v1beta1.{kind}", ("v1", "Status"): "v1.Status"}
    if got in known:
        raise CallError(f"converting ({known[got]}) to ({version}.{kind}): unknown conversion")
    words = f"no kind {go_quote(got[1])} is registered for version {go_quote(got[0])}"
    raise CallError(f'{words} in scheme "pkg/runtime/scheme.go:111"')


def _parse(data: bytes) -> Any:
    """JSON; ValueError for other text. A short text is read as YAML, only for an error in Go's words."""
    if jsonio.depth_exceeds(data):
        raise ValueError("exceeded max depth")
    try:
        return jsonio.loads_as_go(data)[0]
    except jsonio.JsonError:
        if len(data) <= _TEXT_SHOWN:
            read = yamlio.loads(data)
            if not isinstance(read, dict):
                return read
        raise


def no_object(value: Any) -> str:
    """Go's error for JSON that should have been an object with a kind."""
    shape = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
    word = f"json: cannot unmarshal {json_word(value)} into Go value of type {shape}"
    return f"couldn't get version/kind; json parse error: {word}"


def json_word(value: Any) -> str:
    """A JSON value's type, as Go's decoder calls it."""
    if isinstance(value, bool):
        return "bool"
    return {str: "string", int: "number", float: "number", list: "array", dict: "object"}.get(type(value), "null")


def _refused(status: int, content_type: str, data: bytes) -> CallError:
    try:
        body = jsonio.loads(data)
    except jsonio.JsonError:
        body = None
    if isinstance(body, dict) and body.get("kind") == "Status" and body.get("status") != "Success":
        told = ApiError.from_status(body, status)
        return CallError(told.message or "unknown", told)
    is_text = not content_type or content_type.partition(";")[0].strip().startswith("text/")
    text = data[:_TEXT_SHOWN].decode("utf-8", "replace").strip() if is_text else "unknown"
    reason, message = _generic(status, text)
    cause = {"reason": "UnexpectedServerResponse", "message": text}
    return CallError(message, ApiError(status, reason, message, {"causes": [cause]}))


_GENERIC = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    404: ("NotFound", "the server could not find the requested resource"),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    409: ("AlreadyExists", "the server reported a conflict"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


def _generic(status: int, text: str) -> tuple[str, str]:
    """Reason and message for an HTTP error that came without a Status."""
    if found := _GENERIC.get(status):
        return found
    if status in (403, 415):
        return ("Forbidden" if status == 403 else "UnsupportedMediaType"), text
    if status == 406:
        fallback = "the server was unable to respond with a content type that the client supports"
        return "NotAcceptable", fallback if text in ("", "unknown") else text
    if status >= 500:
        return "InternalError", f"an error on the server ({go_quote(text)}) has prevented the request from succeeding"
    return "", f"the server responded with the status code {status} but did not return more information"


# ---------------------------------------------------------------------------------------------------------------------
# Failures in Go's words


def _go_words(error: BaseException, endpoint: WebhookEndpoint) -> str:
    if outbound.is_refusal(error):
        return outbound.REFUSED
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate_words(error.certificate_error, endpoint)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        if "HTTP_REQUEST" in str(error) or "WRONG_VERSION" in str(error):
            return "http: server gave HTTP response to HTTPS client"
        return f"remote error: tls: {getattr(error, 'strerror', None) or error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"dial tcp {_address(error)}: {_connect_words(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return "EOF"
    if isinstance(error, ConnectionResetError):
        return "read: connection reset by peer"
    return str(error) or type(error).__name__


def _address(error: aiohttp.ClientConnectorError) -> str:
    host = f"[{error.host}]" if ":" in str(error.host) else str(error.host)
    return f"{host}:{error.port}"


def _connect_words(error: OSError) -> str:
    known = {
        errno.ECONNREFUSED: "connect: connection refused",
        errno.EHOSTUNREACH: "connect: no route to host",
        errno.ENETUNREACH: "connect: network is unreachable",
        errno.ETIMEDOUT: "connect: connection timed out",
        errno.ECONNRESET: "connect: connection reset by peer",
    }
    if error.errno in known:
        return known[error.errno]
    return f"connect: {(error.strerror or str(error)).lower()}"


def _certificate_words(error: BaseException, endpoint: WebhookEndpoint) -> str:
    prefix = "tls: failed to verify certificate: x509: "
    message = getattr(error, "verify_message", "") or str(error)
    host = endpoint.url.partition("://")[2].partition("/")[0].rpartition(":")[0] or endpoint.url
    if "mismatch" in message.lower():
        return f"{prefix}certificate is not valid for {host}"
    if "expired" in message:
        return f"{prefix}certificate has expired or is not yet valid"
    if "self" in message or "unable to get" in message:
        return f"{prefix}certificate signed by unknown authority"
    return prefix + message


def bundle_problem(bundle: bytes) -> str:
    """The reason why a caBundle can't be used, in its validation's words; empty when it can."""
    try:
        found = x509.load_pem_x509_certificates(bundle)
    except ValueError:
        found = []
    return "" if found else "unable to load root certificates: unable to parse bytes as PEM block"


# --- addresses of webhooks ----------------------------------------------------------------------------------------------
#
# A URL or a service, in apiserver's own words: for admission webhooks (:mod:`.builtin.admissionregistration`) and conversion
# webhooks (:mod:`.crd.spec_rules`).

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
