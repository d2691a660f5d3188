"""Credentials that change while we run: token files that are rewritten, plug-ins that give out short-lived tokens.

A :class:`CredentialSource` is called before every request and answers from memory most of the time. After an Unauthorized it
must forget its credential, once. The kubeconfig's side of it is :mod:`remuda.client.kubeconfig`.
"""

from __future__ import annotations

import asyncio
import base64
import os
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from remuda.kube.clock import Clock, deadline, parse_rfc3339
from remuda.kube.encoding import jsonio

from .kubeconfig import ConfigError, ExecPlugin, KubeTarget

Obj = dict[str, Any]

# The kubelet renews projected tokens well before they end; client-go, too, looks once a minute.
FILE_SECONDS = 60.0
# A credential this close to its end is renewed rather than sent.
LEEWAY_SECONDS = 10.0
PLUGIN_SECONDS = 120.0


class Credential(NamedTuple):
    """An Authorization header and, from plug-ins that make one, a client certificate with its key (PEM)."""

    authorization: str = ""
    certificate: bytes = b""
    key: bytes = b""

    def __repr__(self) -> str:  # a secret has no place in a log
        return "Credential(…)"


class CredentialSource(Protocol):
    async def current(self) -> Credential: ...

    def forget(self) -> bool:
        """The last credential was refused: True when another attempt may give a new one."""


def source_for(target: KubeTarget, clock: Clock) -> CredentialSource:
    """The target's credential source; certificates from the kubeconfig belong to the connection."""
    if target.exec_plugin is not None:
        return PluginCredentials(target, target.exec_plugin, clock)
    if target.token_file is not None:
        return FileToken(target.token_file, clock)
    if target.token:
        return Fixed(Credential(f"Bearer {target.token}"))
    if target.username:
        pair = base64.b64encode(f"{target.username}:{target.password}".encode()).decode()
        return Fixed(Credential(f"Basic {pair}"))
    return Fixed(Credential())


class Fixed:
    def __init__(self, credential: Credential) -> None:
        self._credential = credential

    async def current(self) -> Credential:
        return self._credential

    def forget(self) -> bool:
        return False


class FileToken:
    """A bearer token in a file that another program keeps fresh."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._read_at: float | None = None
        self._credential = Credential()

    async def current(self) -> Credential:
        now = self._clock.monotonic()
        if self._read_at is None or now - self._read_at >= FILE_SECONDS:
            self._credential = self._load()
            self._read_at = now
        return self._credential

    def forget(self) -> bool:
        self._read_at = None
        return True

    def _load(self) -> Credential:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            # During a replacement the old token is still valid.
            if self._credential.authorization:
                return self._credential
            raise ConfigError(f"the token file {self._path} can't be read: {error.strerror}") from None
        if not token:
            raise ConfigError(f"the token file {self._path} is empty")
        return Credential(f"Bearer {token}")


class PluginCredentials:
    """The output of an exec plug-in, kept until it expires or is refused. Concurrent requests share one run."""

    def __init__(self, target: KubeTarget, plugin: ExecPlugin, clock: Clock) -> None:
        self._target = target
        self._plugin = plugin
        self._clock = clock
        self._running = asyncio.Lock()
        self._credential: Credential | None = None
        self._ends: float | None = None

    async def current(self) -> Credential:
        async with self._running:
            ended = self._ends is not None and self._clock.time() >= self._ends - LEEWAY_SECONDS
            if self._credential is None or ended:
                self._credential, self._ends = _parse(self._plugin, await self._run())
            return self._credential

    def forget(self) -> bool:
        self._credential = None
        return True

    async def _run(self) -> bytes:
        plugin = self._plugin
        environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": jsonio.dumps_text(self._exec_info())}
        try:
            process = await asyncio.create_subprocess_exec(
                plugin.command,
                *plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            hint = f"; {plugin.install_hint.strip()}" if plugin.install_hint else ""
            raise ConfigError(f"the exec plug-in {plugin.command} can't be run: {error.strerror}{hint}") from None
        try:
            async with deadline(self._clock, PLUGIN_SECONDS):
                output, complaint = await process.communicate()
        except TimeoutError:
            raise ConfigError(f"the exec plug-in {plugin.command} gave no answer in {PLUGIN_SECONDS:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            last = complaint.decode(errors="replace").strip().splitlines()[-1:] or ["it printed nothing"]
            raise ConfigError(f"the exec plug-in {plugin.command} failed with exit code {process.returncode}: {last[0]}")
        return output

    def _exec_info(self) -> Obj:
        spec: Obj = {"interactive": False}
        if self._plugin.provide_cluster_info:
            spec["cluster"] = _cluster_info(self._target)
        return {"kind": "ExecCredential", "apiVersion": self._plugin.api_version, "spec": spec}


def _cluster_info(target: KubeTarget) -> Obj:
    info: Obj = {"server": target.server, "config": target.cluster_config}
    if target.ca:
        info["certificate-authority-data"] = base64.b64encode(target.ca).decode()
    if target.insecure:
        info["insecure-skip-tls-verify"] = True
    if target.tls_server_name:
        info["tls-server-name"] = target.tls_server_name
    if target.proxy_url:
        info["proxy-url"] = target.proxy_url
    return info


def _parse(plugin: ExecPlugin, output: bytes) -> tuple[Credential, float | None]:
    try:
        answer = jsonio.loads(output)
        kind, api_version, status = answer["kind"], answer["apiVersion"], answer.get("status") or {}
        ends = parse_rfc3339(status["expirationTimestamp"]) if status.get("expirationTimestamp") else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(f"the exec plug-in {plugin.command} did not print an ExecCredential") from None
    if kind != "ExecCredential" or api_version != plugin.api_version:
        raise ConfigError(f"the exec plug-in {plugin.command} printed {kind} of {api_version}, not {plugin.api_version}")
    token = str(status.get("token") or "")
    certificate = str(status.get("clientCertificateData") or "").encode()
    key = str(status.get("clientKeyData") or "").encode()
    if not token and not (certificate and key):
        raise ConfigError(f"the exec plug-in {plugin.command} returned neither a token nor a certificate with its key")
    return Credential(f"Bearer {token}" if token else "", certificate, key), ends
