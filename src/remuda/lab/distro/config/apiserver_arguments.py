"""The supported `kube-apiserver-arg` of the simulated API: its token webhook. All others are ignored, with a warning.

The authorised cluster endpoint needs it: the planner's file names `kube-api-auth`, which runs beside every API server.
"""

from __future__ import annotations

import logging
from pathlib import Path

from remuda.access.settings import validation
from remuda.apiserver.auth.token_webhook import VERSIONS, WebhookAuthenticator
from remuda.apiserver.webhook_client import Endpoint, WebhookClient
from remuda.client import kubeconfig
from remuda.kube.clock import Clock

from . import arguments as component_arguments
from .arguments import ConfigError
from .settings import Settings

log = logging.getLogger(__name__)

_OPTION = "kube-apiserver-arg"
_WEBHOOK = "authentication-token-webhook"
_FILE, _VERSION, _KEEP = f"{_WEBHOOK}-config-file", f"{_WEBHOOK}-version", f"{_WEBHOOK}-cache-ttl"
_DEFAULTS = {_FILE: "", _VERSION: "v1beta1", _KEEP: "2m"}


def arguments(settings: Settings) -> dict[str, str]:
    """Values by name, without the dashes; the last one of a repeated argument counts."""
    return component_arguments.said(settings.values, _OPTION)


def token_webhook(settings: Settings, clock: Clock) -> tuple[WebhookAuthenticator, WebhookClient] | None:
    """The token webhook and its client; None without one. The caller closes the client. Raises ConfigError."""
    given = arguments(settings)
    unknown = sorted(given.keys() - _DEFAULTS.keys())
    if unknown:
        log.warning("%s: the simulated API does not know %s; nothing comes of it", _OPTION, ", ".join(unknown))
    told = {**_DEFAULTS, **given}
    if not told[_FILE]:
        return None
    if told[_VERSION] not in VERSIONS:
        raise ConfigError(f"{_OPTION}: {_VERSION} must be one of {', '.join(VERSIONS)}")
    if problem := validation.duration(told[_KEEP]):
        raise ConfigError(f"{_OPTION}: {_KEEP} {problem}")
    endpoint, client = _endpoint(Path(told[_FILE])), WebhookClient(clock)
    return WebhookAuthenticator(client, endpoint, clock, version=told[_VERSION], keep=validation.seconds(told[_KEEP])), client


def _endpoint(path: Path) -> Endpoint:
    try:
        target = kubeconfig.select(kubeconfig.parse(path.read_bytes(), path))
    except (OSError, kubeconfig.ConfigError) as error:
        raise ConfigError(f"{_OPTION}: {_FILE}: {error}") from None
    if target.token or target.token_file or target.client_certificate or target.username or target.exec_plugin:
        raise ConfigError(f"{_OPTION}: {path}: a webhook that wants to know who asks is not supported")
    return Endpoint(target.server, target.ca)
