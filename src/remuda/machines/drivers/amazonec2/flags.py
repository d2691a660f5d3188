"""The flags: names, kinds, defaults and variables of rancher-machine (docs/reference/machines.md#flags)."""

from __future__ import annotations

from ...options import Flag, FlagKind

_STRINGS, _INT, _BOOL = FlagKind.STRINGS, FlagKind.INT, FlagKind.BOOL

DEFAULT_GROUP = "rancher-nodes"


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
