"""Amazon's double: moto as a process of its own, and a proxy before it that adds what moto leaves out.

moto takes a launch with the same client token for another one, and shows everything at once. EC2 does neither.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from urllib.request import Request, urlopen

import boto3
from aiohttp import web

from .rig import Answer, Way

REGION = "us-east-1"
UBUNTU, OLDER_UBUNTU, LARGE = "ami-0a0a0a0a0a0a0a0a1", "ami-0a0a0a0a0a0a0a0a2", "ami-0b0b0b0b0b0b0b0b1"
_IMAGE = {
    "description": "",
    "public": True,
    "virtualization_type": "hvm",
    "architecture": "x86_64",
    "state": "available",
    "platform": None,
    "image_type": "machine",
    "hypervisor": "xen",
    "root_device_name": "/dev/sda1",
    "root_device_type": "ebs",
    "sriov": "simple",
}
_JAMMY = "ubuntu/images/hvm-ssd/ubuntu-jammy-22.04-amd64-server-"
# moto's own list is long: it takes seconds to read.
_IMAGES = [
    {
        **_IMAGE,
        "ami_id": UBUNTU,
        "name": f"{_JAMMY}20260901",
        "owner_id": "099720109477",
        "creation_date": "2026-09-01T00:00:00Z",
    },
    {
        **_IMAGE,
        "ami_id": OLDER_UBUNTU,
        "name": f"{_JAMMY}20240901",
        "owner_id": "099720109477",
        "creation_date": "2024-09-01T00:00:00Z",
    },
    {**_IMAGE, "ami_id": LARGE, "name": "somebody's", "owner_id": "111122223333", "root_device_name": "/dev/xvda"},
]


@contextlib.contextmanager
def moto(directory: Path) -> Iterator[str]:
    """The address of a new one."""
    images = directory / "images.json"
    images.write_text(json.dumps(_IMAGES))
    environ = {
        **os.environ,
        "MOTO_AMIS_PATH": str(images),
        "MOTO_ENABLE_AMI_VALIDATION": "true",
        "MOTO_ENABLE_KEYPAIR_VALIDATION": "true",
    }
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environ) as process:
        try:
            assert process.stderr is not None
            told = []
            for line in process.stderr:
                told.append(line)
                if found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", line):
                    break
            else:
                raise RuntimeError(f"moto did not start:\n{''.join(told)}")
            # It logs every request: nobody reads that, and it must not fill the pipe.
            drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=subprocess.DEVNULL)
            try:
                yield found[1]
            finally:
                process.kill()
                drain.wait()
        finally:
            process.kill()


def error(code: str, message: str = "no", status: int = 400) -> Answer:
    told = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    body = f"<Response><Errors>{told}</Errors><RequestID>1</RequestID></Response>"
    return Answer(status=status, text=body, content_type="text/xml")


def asked(body: bytes) -> dict[str, str]:
    return dict(parse_qsl(body.decode()))


class Amazon:
    """`way` is what a driver talks to; `truth` is a client that goes past it."""

    def __init__(self, address: str) -> None:
        self.truth: Any = boto3.client(
            "ec2", region_name=REGION, endpoint_url=address, aws_access_key_id="AKIATEST", aws_secret_access_key="test"
        )
        self.way = Way(address, self._name, self._before, self._after)
        # How many looks at instances see none of the last launch.
        self.lag = 0
        self._hidden = 0
        self._launches: dict[str, tuple[dict[str, str], Answer]] = {}
        self.requests: list[dict[str, str]] = []

    @staticmethod
    def _name(request: web.BaseRequest, body: bytes) -> str:
        return asked(body).get("Action", request.path)

    async def _before(self, call: str, body: bytes) -> Answer | None:
        words = asked(body)
        self.requests.append(words)
        if call == "RunInstances" and (launched := self._launches.get(words.get("ClientToken", ""))):
            if launched[0] == words:
                return Answer(body=launched[1].body, content_type="text/xml")
            return error("IdempotentParameterMismatch", "the token was used with other parameters")
        if call in ("DescribeInstances", "TerminateInstances") and self._hidden:
            self._hidden -= 1
            if "InstanceId.1" in words:
                return error("InvalidInstanceID.NotFound", f"The instance ID '{words['InstanceId.1']}' does not exist")
            return Answer(
                text="<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>", content_type="text/xml"
            )
        if call == "TerminateInstances" and not self._lives(words["InstanceId.1"]):
            # moto falls over the interfaces that went with it; EC2 says yes again.
            return Answer(
                text="<TerminateInstancesResponse><instancesSet/></TerminateInstancesResponse>", content_type="text/xml"
            )
        return None

    def _lives(self, instance: str) -> bool:
        return any(one["InstanceId"] == instance for one in self.instances())

    def _after(self, call: str, body: bytes, answer: Answer) -> None:
        if call == "RunInstances" and answer.status == 200:
            words = asked(body)
            self._launches[words["ClientToken"]] = (words, answer)
            self._hidden = self.lag

    def reset(self) -> None:
        urlopen(Request(f"{self.way.behind}/moto-api/reset", method="POST")).close()

    def instances(self) -> list[dict[str, Any]]:
        """All but those that are gone."""
        living = ["pending", "running", "stopping", "stopped", "shutting-down"]
        found = self.truth.describe_instances(Filters=[{"Name": "instance-state-name", "Values": living}])["Reservations"]
        return [one for part in found for one in part["Instances"]]

    def instance(self) -> dict[str, Any]:
        (only,) = self.instances()
        return only

    def keys(self) -> list[str]:
        return [pair["KeyName"] for pair in self.truth.describe_key_pairs()["KeyPairs"]]

    def groups(self) -> list[str]:
        found = self.truth.describe_security_groups()["SecurityGroups"]
        return sorted(group["GroupName"] for group in found if group["GroupName"] != "default")

    def volumes(self) -> list[str]:
        return [volume["VolumeId"] for volume in self.truth.describe_volumes()["Volumes"]]

    def left(self) -> dict[str, list[Any]]:
        """Everything that somebody would pay for or wonder about."""
        found = {
            "instances": [one["InstanceId"] for one in self.instances()],
            "keys": self.keys(),
            "groups": self.groups(),
            "volumes": self.volumes(),
            "interfaces": [one["NetworkInterfaceId"] for one in self.truth.describe_network_interfaces()["NetworkInterfaces"]],
        }
        return {kind: things for kind, things in found.items() if things}
