"""Instances of Amazon EC2, in the order of creation: place, image, key pair, security groups, the instance, its address.

No instance is launched twice: the request carries a client token derived from the machine's own, for which EC2 gives the same
instance again; and the instance has that token as a tag, by which it is found long after EC2 has forgotten the request. EC2 shows
a new instance only after a while. So when the time of a launch is kept but its instance is not visible, the driver looks for it
until `_SETTLING` is over before it concludes that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...driver import Driver, DriverContext, Found, Keep, Machine, Options, State
from ...errors import DriverError, Reason
from ...options import Flag, FlagKind
from . import client
from .client import Ec2, Ec2Refused, refusal
from .key_pairs import ensure_key_pair, key_pairs, remove_key_pairs
from .launch_request import check, find_image, find_place, request
from .security_groups import DEFAULT_GROUP, check_groups, ensure_groups, remove_groups, unused_groups

# --- flags -----------------------------------------------------------------------------------------------------------------
#
# The flags: names, kinds, defaults and variables of rancher-machine (docs/reference/machines.md#flags).

_STRINGS, _INT, _BOOL = FlagKind.STRINGS, FlagKind.INT, FlagKind.BOOL


def _flag(
    name: str,
    usage: str,
    kind: FlagKind = FlagKind.STRING,
    default: str | int | tuple[str, ...] | None = None,
    *,
    env: str | None = None,
    also: tuple[str, ...] = (),
    secret: bool = False,
) -> Flag:
    variable = f"AWS_{name.upper().replace('-', '_')}" if env is None else env
    return Flag(f"amazonec2-{name}", kind, default, usage, variable, also, secret)


# A cloud credential's accessKey and secretKey come as the second names of their variables
# (docs/reference/machines.md#environment).
FLAGS: tuple[Flag, ...] = (
    _flag("access-key", "AWS Access Key", env="AWS_ACCESS_KEY_ID", also=("AWS_ACCESS_KEY",), secret=True),
    _flag("secret-key", "AWS Secret Key", env="AWS_SECRET_ACCESS_KEY", also=("AWS_SECRET_KEY",), secret=True),
    _flag("session-token", "AWS Session Token", secret=True),
    _flag("ami", "AWS machine image"),
    _flag("region", "AWS region", default="us-east-1", env="AWS_DEFAULT_REGION"),
    _flag("vpc-id", "AWS VPC id"),
    _flag("zone", "AWS zone for instance (i.e. a,b,c,d,e)", default="a"),
    _flag("subnet-id", "AWS VPC subnet id"),
    _flag("security-group-readonly", "Skip adding default rules to security groups", _BOOL),
    _flag("security-group", "AWS VPC security group", _STRINGS, (DEFAULT_GROUP,)),
    _flag("open-port", "Make the specified port number accessible from the Internet", _STRINGS, env=""),
    _flag("tags", "AWS Tags (e.g. key1,value1,key2,value2)"),
    _flag("instance-type", "AWS instance type", default="t2.micro"),
    _flag("device-name", "AWS root device name"),
    _flag("root-size", "AWS root disk size (in GB)", _INT, 16),
    _flag("volume-type", "Amazon EBS volume type", default="gp2"),
    _flag("iam-instance-profile", "AWS IAM Instance Profile", env="AWS_INSTANCE_PROFILE"),
    _flag("ssh-user", "Set the name of the ssh user", default="ubuntu"),
    _flag("request-spot-instance", "Set this flag to request spot instance", _BOOL, env=""),
    _flag("spot-price", "AWS spot instance bid price (in dollar)", default="0.50", env=""),
    _flag("block-duration-minutes", "AWS spot instance duration in minutes (60, 120, 180, 240, 300, or 360)", _INT, 0, env=""),
    _flag("private-address-only", "Only use a private IP address", _BOOL, env=""),
    _flag("use-private-address", "Force the usage of private IP address", _BOOL, env=""),
    _flag("monitoring", "Set this flag to enable CloudWatch monitoring", _BOOL, env=""),
    _flag("use-ebs-optimized-instance", "Create an EBS optimized instance", _BOOL, env=""),
    _flag("ssh-keypath", "SSH Key for Instance"),
    _flag("keypair-name", "AWS keypair to use; requires --amazonec2-ssh-keypath"),
    _flag("retries", "Set retry count for recoverable failures (use -1 to disable)", _INT, 5, env=""),
    _flag("endpoint", "Optional endpoint URL (hostname only or fully qualified URI)", default=""),
    _flag("insecure-transport", "Disable SSL when sending requests", _BOOL),
    _flag("userdata", "path to file with cloud-init user data"),
    _flag("encrypt-ebs-volume", "Encrypt the EBS volume using the AWS Managed CMK", _BOOL),
    _flag("kms-key", "Custom KMS key using the AWS Managed CMK"),
    _flag("http-endpoint", "Enables or disables the HTTP metadata endpoint on your instances"),
    _flag("http-tokens", "The state of token usage for your instance metadata requests."),
    _flag("http-protocol-ipv6", "Enables or disables the IPv6 metadata endpoint on your instances", default="disabled"),
    _flag("ipv6-address-count", "Number of IPv6 addresses to assign to the instance", _INT, 0),
    _flag("enable-primary-ipv6", "Make the first IPv6 address the primary one", _BOOL),
    _flag("ipv6-address-only", "Only use an IPv6 address", _BOOL),
)


# --- driver --------------------------------------------------------------------------------------------------------------------

# The time that EC2 may need to show new resources.
_SETTLING = 60.0
_PAUSE = 3.0
_LAUNCHES, _ADDRESS_POLLS, _GONE_POLLS = 10, 60, 100
_NO_INSTANCE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_LIVE = ("pending", "running", "stopping", "stopped")
_STATES = {
    "pending": State.STARTING,
    "running": State.RUNNING,
    "stopping": State.STOPPING,
    "shutting-down": State.STOPPING,
    "stopped": State.STOPPED,
    "terminated": State.NOT_FOUND,
}

Instance = dict[str, Any]


class AmazonEC2(Driver):
    name = "amazonec2"
    title = "Amazon EC2"
    flags = FLAGS
    extra = "amazonec2"
    public_fields = ("accessKey",)
    private_fields = ("secretKey",)
    file_fields = {"sshKeyContents": "sshKeypath", "userdata": "userdata"}

    def __init__(self, surroundings: DriverContext | None = None) -> None:
        super().__init__(surroundings)
        self._ways: dict[int, tuple[Options, Ec2]] = {}

    def restored(self, state: Mapping[str, Any]) -> Mapping[str, object]:
        read = {
            "region": state.get("Region"),
            "endpoint": state.get("Endpoint"),
            "insecure-transport": state.get("DisableSSL"),
            "retries": state.get("RetryCount"),
            "request-spot-instance": state.get("RequestSpotInstance"),
        }
        environ = self.around.environ
        if not (environ.get("AWS_ACCESS_KEY_ID") or environ.get("AWS_ACCESS_KEY")):
            # Ours never are in a state.
            read |= {
                "access-key": state.get("AccessKey"),
                "secret-key": state.get("SecretKey"),
                "session-token": state.get("SessionToken"),
            }
        return {name: value for name, value in read.items() if value}

    async def precreate(self, machine: Machine) -> None:
        check(machine.options)
        ec2 = self._ec2(machine.options)
        place = await find_place(ec2, machine.options)
        await find_image(ec2, machine.options)
        await check_groups(ec2, machine.options, place.vpc)

    async def create(self, machine: Machine, keep: Keep) -> None:
        check(machine.options)
        ec2 = self._ec2(machine.options)
        instance = str(machine.state.get("InstanceId") or "")
        if not instance and machine.state.get("LaunchBegun"):
            instance = await self._found_again(ec2, machine, keep)
        if not instance:
            instance = await self._launch(ec2, machine, keep)
        await self._await_address(ec2, machine, keep, instance)

    async def remove(self, machine: Machine, keep: Keep) -> None:
        try:
            await self._remove(machine)
        except Ec2Refused as error:
            if error.reason is Reason.NOT_FOUND:
                # NOT_FOUND would mean that nothing is left of the machine. Where that is so, no error is raised.
                raise DriverError(Reason.FAILED, error.message) from error
            raise

    async def _remove(self, machine: Machine) -> None:
        ec2 = self._ec2(machine.options)
        ids = await self._instances_of(ec2, machine)
        for instance in ids:
            await self._terminate(ec2, machine, instance)
        await self._await_gone(ec2, ids)
        await self._cancel_spot_requests(ec2, machine)
        await remove_key_pairs(ec2, machine)
        await remove_groups(ec2, machine)

    async def state(self, machine: Machine) -> State:
        ec2 = self._ec2(machine.options)
        instance = str(machine.state.get("InstanceId") or "")
        found = [await _described(ec2, instance)] if instance else await _by_tag(ec2, client.TOKEN, machine.token)
        if not found or found[0] is None:
            return State.NOT_FOUND
        return _STATES.get(str(found[0]["State"]["Name"]), State.ERROR)

    async def owned(self, options: Options, owner: str) -> list[Found]:
        """Instances, and key pairs and security groups that nothing uses or needs."""
        ec2 = self._ec2(options)
        found = [_found(instance) for instance in await _by_tag(ec2, client.OWNER, owner)]
        for pair in await key_pairs(ec2, client.having(client.OWNER, [owner])):
            bears = client.read(pair)
            created = pair.get("CreateTime")
            found.append(
                Found(
                    str(pair["KeyName"]),
                    bears.get(client.MACHINE, ""),
                    bears.get(client.TOKEN, ""),
                    "key pair",
                    created=created.isoformat() if created else "",
                )
            )
        found += [Found(str(group["GroupId"]), "", what="security group") for group in await unused_groups(ec2, owner)]
        return found

    async def verify(self, options: Options) -> None:
        ec2 = Ec2(options.replaced(retries=0), self.around)
        doing = "identifying the EC2 account"
        try:
            # A known user without permissions passes, too.
            await ec2.unless(("UnauthorizedOperation",), "describe_availability_zones", doing)
        finally:
            ec2.close()

    async def aclose(self) -> None:
        for _, ec2 in self._ways.values():
            ec2.close()

    def _ec2(self, options: Options) -> Ec2:
        # The options are held too, so that no other object gets their identity.
        return self._ways.setdefault(id(options), (options, Ec2(options, self.around)))[1]

    async def _launch(self, ec2: Ec2, machine: Machine, keep: Keep) -> str:
        options, around = machine.options, self.around
        place = await find_place(ec2, options)
        image = await find_image(ec2, options, str(machine.state.get("AMI") or ""))
        await keep(
            {**_settings(options), "AMI": image.id, "DeviceName": image.root, "VpcId": place.vpc, "SubnetId": place.subnet}
        )
        key = await ensure_key_pair(ec2, machine, keep, around)
        groups = await ensure_groups(ec2, machine, place.vpc, around)
        attempt = int(machine.state.get("LaunchAttempt") or 1)
        around.say(f"launching {machine.name} from {image.id} in {place.subnet} ({place.zone})")
        for tried in range(1, _LAUNCHES + 1):
            await keep({"SecurityGroupIds": groups, "LaunchAttempt": attempt, "LaunchBegun": int(around.clock.time())})
            try:
                answer = await ec2(
                    "run_instances", "launching an instance", **request(machine, image, place, groups, key, attempt)
                )
                return await _keep_instance(answer["Instances"][0], keep)
            except Ec2Refused as error:
                if error.code == "IdempotentParameterMismatch":
                    # A launch with this token was begun, with a request that was not quite the same.
                    if found := await self._found_again(ec2, machine, keep):
                        return found
                    raise
                if tried == _LAUNCHES:
                    raise
                if error.code == "InvalidGroup.NotFound":
                    # Too new to be seen; or removed with the last machine that used it, between our look and now.
                    groups = await ensure_groups(ec2, machine, place.vpc, around)
                    attempt += 1
                elif error.code != "InvalidKeyPair.NotFound" or machine.state.get("ExistingKey"):
                    raise
            await around.clock.sleep(_PAUSE)
        raise AssertionError("unreachable")

    async def _found_again(self, ec2: Ec2, machine: Machine, keep: Keep) -> str:
        """The instance that an interrupted launch made; empty if there is none."""
        found = await self._seen(lambda: _by_tag(ec2, client.TOKEN, machine.token), machine)
        if not found:
            return ""
        self.around.say(f"going on with {found[0]['InstanceId']}, which an earlier try launched")
        return await _keep_instance(found[0], keep)

    async def _await_address(self, ec2: Ec2, machine: Machine, keep: Keep, instance: str) -> None:
        options = machine.options
        for _ in range(_ADDRESS_POLLS):
            found = await _described(ec2, instance)
            name = found["State"]["Name"] if found else ""
            if found and name in ("shutting-down", "terminated"):
                raise _ended(found)
            if found and (addresses := _addresses(found, options)):
                await keep({**addresses, "SSHUser": options.text("ssh-user"), "SSHPort": 22})
                return
            await self.around.clock.sleep(_PAUSE)
        seconds = _ADDRESS_POLLS * _PAUSE
        if not found:
            raise DriverError(Reason.TIMED_OUT, f"the instance {instance} was launched and can't be seen {seconds:.0f} s later")
        raise DriverError(
            Reason.TIMED_OUT,
            f"the instance {instance} is {name} and has no address of the kind asked for {seconds:.0f} s after its launch; in "
            "a subnet without public addresses, say privateAddressOnly or usePrivateAddress",
            field="usePrivateAddress",
        )

    async def _instances_of(self, ec2: Ec2, machine: Machine) -> list[str]:
        kept = str(machine.state.get("InstanceId") or "")
        found = await (
            self._seen(lambda: _by_tag(ec2, client.TOKEN, machine.token), machine)
            if not kept and machine.state.get("LaunchBegun")
            else _by_tag(ec2, client.TOKEN, machine.token)
        )
        return sorted({*([kept] if kept else ()), *(str(instance["InstanceId"]) for instance in found)})

    async def _terminate(self, ec2: Ec2, machine: Machine, instance: str) -> None:
        self.around.say(f"terminating {instance}")
        doing = f"terminating {instance}"

        async def asked() -> list[Any]:
            answer = await ec2.unless(_NO_INSTANCE, "terminate_instances", doing, InstanceIds=[instance])
            return [] if answer is None else [answer]

        await self._seen(asked, machine)

    async def _await_gone(self, ec2: Ec2, ids: Iterable[str]) -> None:
        """Wait until they are terminated, so that volumes and interfaces are deleted too. One that takes long to shut down costs
        nothing any more."""
        for instance in ids:
            for _ in range(_GONE_POLLS):
                found = await _described(ec2, instance)
                if found is None or found["State"]["Name"] == "terminated":
                    break
                await self.around.clock.sleep(_PAUSE)
            else:
                self.around.say(f"{instance} still shuts down; not waiting longer")

    async def _cancel_spot_requests(self, ec2: Ec2, machine: Machine) -> None:
        if not machine.options.on("request-spot-instance"):
            return
        ids = {str(machine.state.get("SpotInstanceRequestId") or "")} - {""}
        if machine.token:
            filters = [client.having(client.TOKEN, [machine.token]), {"Name": "state", "Values": ["open", "active"]}]
            doing, key = "looking for our spot request", "SpotInstanceRequests"
            ids |= {
                str(one["SpotInstanceRequestId"])
                async for one in ec2.pages("describe_spot_instance_requests", doing, key, Filters=filters)
            }
        if ids:
            gone = ("InvalidSpotInstanceRequestID.NotFound",)
            doing = "cancelling the spot request"
            await ec2.unless(gone, "cancel_spot_instance_requests", doing, SpotInstanceRequestIds=sorted(ids))

    async def _seen(self, look: Callable[[], Any], machine: Machine) -> list[Any]:
        """The result of `look`, repeated while it is empty until everything launched must be visible."""
        begun = float(machine.state.get("LaunchBegun") or 0)
        while True:
            found: list[Any] = await look()
            # Also when this machine's clock was set back meanwhile.
            if found or not 0 <= self.around.clock.time() - begun < _SETTLING:
                return found
            await self.around.clock.sleep(_PAUSE)


def _settings(options: Options) -> dict[str, Any]:
    """The settings that rancher-machine needs to remove the machine."""
    return {
        "Region": options.text("region"),
        "Zone": options.text("zone"),
        "Endpoint": options.text("endpoint"),
        "DisableSSL": options.on("insecure-transport"),
        "RetryCount": options.number("retries"),
        "InstanceType": options.text("instance-type"),
        "SecurityGroupNames": list(options.texts("security-group")),
        "SecurityGroupReadOnly": options.on("security-group-readonly"),
        "RequestSpotInstance": options.on("request-spot-instance"),
        "PrivateIPOnly": options.on("private-address-only"),
        "UsePrivateIP": options.on("use-private-address"),
        "Tags": options.text("tags"),
    }


async def _keep_instance(instance: Instance, keep: Keep) -> str:
    found = str(instance["InstanceId"])
    request = str(instance.get("SpotInstanceRequestId") or "")
    await keep({"InstanceId": found, **({"SpotInstanceRequestId": request} if request else {})})
    return found


async def _described(ec2: Ec2, instance: str) -> Instance | None:
    doing = f"looking at {instance}"
    answer = await ec2.unless(_NO_INSTANCE, "describe_instances", doing, InstanceIds=[instance])
    found = [one for reservation in (answer or {}).get("Reservations") or () for one in reservation.get("Instances") or ()]
    return found[0] if found else None


async def _by_tag(ec2: Ec2, tag: str, value: str) -> list[Instance]:
    """Live ones, the oldest first."""
    if not value:
        return []
    filters = [client.having(tag, [value]), {"Name": "instance-state-name", "Values": list(_LIVE)}]
    doing = "looking for our instances"
    found: list[Instance] = [
        instance
        async for reservation in ec2.pages("describe_instances", doing, "Reservations", Filters=filters)
        for instance in reservation.get("Instances") or ()
    ]
    return sorted(found, key=lambda instance: (str(instance.get("LaunchTime", "")), str(instance["InstanceId"])))


def _addresses(instance: Instance, options: Options) -> dict[str, str]:
    """Empty until the one is there by which the machine shall be known."""
    interfaces = instance.get("NetworkInterfaces") or [{}]
    six = next((str(one["Ipv6Address"]) for one in interfaces[0].get("Ipv6Addresses") or ()), "")
    private, public = str(instance.get("PrivateIpAddress") or ""), str(instance.get("PublicIpAddress") or "")
    if options.on("ipv6-address-only"):
        four, wanted = "", six
    else:
        four = wanted = private if options.on("private-address-only") or options.on("use-private-address") else public
    return {"IPAddress": four, "PrivateIPAddress": private, "IPv6Address": six} if wanted else {}


def _ended(instance: Instance) -> DriverError:
    """The error for an instance that EC2 ended: its reason is like an error's code, prefixed with the responsible side."""
    told = instance.get("StateReason") or {}
    code = str(told.get("Code") or "terminated")
    said = str(told.get("Message") or instance.get("StateTransitionReason") or "it was terminated")
    return refusal(f"launching the instance {instance['InstanceId']}", code.rpartition(".")[2], said)


def _found(instance: Instance) -> Found:
    bears = client.read(instance)
    launched = instance.get("LaunchTime")
    return Found(
        str(instance["InstanceId"]),
        bears.get(client.MACHINE, ""),
        bears.get(client.TOKEN, ""),
        "instance",
        str(instance.get("PublicIpAddress") or instance.get("PrivateIpAddress") or ""),
        launched.isoformat() if launched else "",
        _STATES.get(str(instance["State"]["Name"]), State.ERROR),
    )
