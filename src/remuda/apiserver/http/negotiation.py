"""Content negotiation: the media type of a response, and the one of a request body."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from remuda.kube import errors

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
_SERVED = (JSON, YAML, PROTOBUF)


class Output(msgspec.Struct, frozen=True, gc=False):
    """`as_` is "" for the plain object, else Table, PartialObjectMetadata or PartialObjectMetadataList."""

    media_type: str = JSON
    as_: str = ""
    table_version: str = "v1"


PLAIN = Output()
# The forms of an answer besides the plain one; those of answers that have no columns; and of documents, which are no objects.
FORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
WITHOUT_TABLE = FORMS[1:]
NO_FORMS = ()


def _split(accept: str) -> list[tuple[float, str, dict[str, str]]]:
    found: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media, *parameters = (part.strip() for part in clause.split(";"))
        values = dict(parameter.partition("=")[::2] for parameter in parameters if "=" in parameter)
        try:
            quality = float(values.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if media:
            found.append((quality, media.lower(), values))
    found.sort(key=lambda item: -item[0])
    return found


_STREAMS = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")


@lru_cache(maxsize=512)
def check_route(accept: str, collection: bool) -> None:
    """The first look at Accept, which built-in kinds and most documents take: media types only, no wildcards but */*."""
    listed = [clause.partition(";")[0].strip() for clause in accept.split(",")]
    if not accept or any(media == "*/*" or media in _SERVED for media in listed):
        return
    raise not_representable((*_SERVED, *_STREAMS) if collection else _SERVED)


def not_representable(served: Iterable[str]) -> errors.ApiError:
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(served)}"
    return errors.ApiError(406, "NotAcceptable", message, {})


@lru_cache(maxsize=512)
def negotiate(accept: str, collection: bool, forms: tuple[str, ...] = FORMS) -> Output:
    """The best form we support, of those that the target has; raises NotAcceptable when there is none."""
    if not accept or accept == "*/*":
        return PLAIN
    for _, media, parameters in _split(accept):
        if media in ("*/*", "application/*", JSON):
            media_type = JSON
        elif media == YAML:
            media_type = YAML
        else:
            continue
        wanted = parameters.get("as", "")
        if not wanted:
            return PLAIN if media_type == JSON else Output(media_type)
        if parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
            continue
        if wanted not in forms:
            continue
        return Output(media_type, wanted, parameters["v"])
    accepted = ", ".join(_SERVED)
    raise errors.not_acceptable(f"only the following media types are accepted: {accepted}")


def negotiate_stream(accept: str) -> Output:
    """The same for a watch, which has no YAML form."""
    try:
        found = negotiate(accept, True)
    except errors.ApiError:
        found = Output(YAML)
    if found.media_type != JSON:
        streams = ", ".join(f"{media};stream=watch" for media in (JSON, PROTOBUF))
        raise errors.not_acceptable(f"only the following media types are accepted: {streams}")
    return found


def error_type(accept: str) -> str:
    """The media type of errors: the requested one if we support it."""
    try:
        return negotiate(accept, True).media_type
    except errors.ApiError:
        return JSON


def input_type(content_type: str, builtin: bool) -> str:
    """The media type of a body; Kubernetes assumes JSON when there is none."""
    media = content_type.partition(";")[0].strip().lower()
    if not media or media == JSON:
        return JSON
    if media in (YAML, "application/x-yaml", "text/yaml"):
        if media == YAML:
            return YAML
    elif media == PROTOBUF and builtin:
        return PROTOBUF
    served = ", ".join(_SERVED)
    raise errors.unsupported_media_type(
        f"the body of the request was in an unknown format - accepted media types include: {served}"
    )
