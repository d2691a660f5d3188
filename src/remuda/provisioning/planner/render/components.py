"""The controller manager and the scheduler: the places of their certificates, and their ports.

Both are set explicitly, because the agent's probes connect to them over TLS and need the port and the certificate. A user's
own settings are kept. :mod:`.probes` reads back what this module wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .context import Config, Ground, strings

_CERT_FILE, _CERT_DIRECTORY, _PORT = "tls-cert-file", "cert-dir", "secure-port"


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    port: int

    @property
    def argument(self) -> str:
        return f"{self.name}-arg"

    @property
    def mounts(self) -> str:
        return f"{self.name}-extra-mount"


CONTROLLER_MANAGER = Component("kube-controller-manager", 10257)
SCHEDULER = Component("kube-scheduler", 10259)
BOTH = (CONTROLLER_MANAGER, SCHEDULER)


def add(ground: Ground, config: Config) -> None:
    """Set the certificates and ports of both components of a control plane."""
    for component in BOTH:
        arguments = strings(config.get(component.argument))
        if not value(arguments, _CERT_FILE):
            directory = value(arguments, _CERT_DIRECTORY)
            if not directory:
                directory = ground.tls(component.name)
                arguments = [*arguments, f"{_CERT_DIRECTORY}={directory}"]
            _mount(ground, component, directory, config)
        if not value(arguments, _PORT):
            arguments = [*arguments, f"{_PORT}={component.port}"]
        config[component.argument] = arguments


def listening(ground: Ground, component: Component, config: Config) -> tuple[str, str]:
    """The port of a component, and the path of its serving certificate."""
    arguments = strings(config.get(component.argument))
    directory = value(arguments, _CERT_DIRECTORY) or ground.tls(component.name)
    certificate = value(arguments, _CERT_FILE) or f"{directory}/{component.name}.crt"
    # Users write the paths of an ordinary host.
    return value(arguments, _PORT) or str(component.port), ground.layout.below(certificate)


def value(arguments: Iterable[str], name: str) -> str:
    """The value of `name=…` among a component's arguments; the last one wins, as it does for the component."""
    said = [argument.removeprefix("--").partition("=") for argument in arguments]
    return next((content for key, _, content in reversed(said) if key == name), "")


def _mount(ground: Ground, component: Component, directory: str, config: Config) -> None:
    if not ground.runtime.runs_static_pods:
        return
    mount = f"{directory}:{directory}"
    mounted = strings(config.get(component.mounts))
    config[component.mounts] = mounted if mount in mounted else [*mounted, mount]
