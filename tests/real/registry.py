"""Debian's docker-registry on this machine: over TLS with a CA that nobody knows, and only for who has the password.

with DockerRegistry(tmp_path) as registry:
    registry.push(layout, "v1", "mirrored/tool:v1")
"""

from __future__ import annotations

import base64
import http.client
import shutil
import ssl
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tests.e2e.serving import eventually
from tests.real import need
from tests.real.pki import Authority
from tests.real.ports import HOST, free_port

USER, PASSWORD = "puller", "open sesame"
# The registry knows no other kind of hash than bcrypt's, which Python does not make.
_HASH = "$2b$04$73FLzCZxt4Qhw/S2xslaSuAiLXGiAa21o5uNGmwbxEWAyAxMCQlaS"


class DockerRegistry:
    def __init__(self, directory: Path, host: str = HOST) -> None:
        self._program = shutil.which("docker-registry") or need.absent("docker-registry is not installed: make test-deps")
        self._directory = directory / "registry"
        self._directory.mkdir()
        authority = Authority(self._directory)
        self.ca = authority.pair.cert
        self.address = f"{host}:{free_port()}"
        self.log = self._directory / "log"
        pair = authority.serving("serving", (host,))
        passwords = self._directory / "htpasswd"
        passwords.write_text(f"{USER}:{_HASH}\n")
        self._config = self._directory / "config.yml"
        said = {
            "version": 0.1,
            "log": {"accesslog": {"disabled": False}},
            "storage": {"filesystem": {"rootdirectory": str(self._directory / "data")}},
            "http": {"addr": self.address, "secret": "-", "tls": {"certificate": str(pair.cert), "key": str(pair.key)}},
            "auth": {"htpasswd": {"realm": "remuda", "path": str(passwords)}},
        }
        self._config.write_text(yaml.safe_dump(said))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"https://{self.address}"

    def __enter__(self) -> Self:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen([self._program, "serve", str(self._config)], stdout=log, stderr=log)
        try:
            eventually(lambda: self._status() == 200, 120)
        except AssertionError:
            self.__exit__(None, None, None)
            raise AssertionError(self.log.read_text(errors="replace")) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def _status(self) -> int:
        host, _, port = self.address.partition(":")
        context = ssl.create_default_context(cafile=str(self.ca))
        connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=10)
        who = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        try:
            connection.request("GET", "/v2/", headers={"Authorization": f"Basic {who}"})
            return connection.getresponse().status
        except OSError:
            return 0
        finally:
            connection.close()

    def push(self, layout: Path, tag: str, name: str) -> None:
        """An image of an OCI layout, under another name."""
        skopeo = shutil.which("skopeo") or need.absent("skopeo is not installed: make test-deps")
        policy, trusted = self._directory / "policy.json", self._directory / "trusted"
        policy.write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        trusted.mkdir(exist_ok=True)
        shutil.copy(self.ca, trusted / "ca.crt")
        options = ["--policy", str(policy), "copy", "-q", "--dest-cert-dir", str(trusted), "--dest-creds", f"{USER}:{PASSWORD}"]
        command = [skopeo, *options, f"oci:{layout}:{tag}", f"docker://{self.address}/{name}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    def asked(self) -> str:
        """What it says of who has asked it for what."""
        return self.log.read_text(errors="replace")
