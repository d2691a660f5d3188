"""The meaning of EC2's error codes for a user. Pure; :mod:`.client` raises the resulting errors."""

from __future__ import annotations

from remuda.kube.network import outbound

from ...errors import DriverError, Reason

_BY_CODE: dict[str, tuple[Reason, str]] = {
    "AuthFailure": (Reason.AUTH_FAILED, "accessKey"),
    "InvalidClientTokenId": (Reason.AUTH_FAILED, "accessKey"),
    "UnrecognizedClientException": (Reason.AUTH_FAILED, "accessKey"),
    "SignatureDoesNotMatch": (Reason.AUTH_FAILED, "secretKey"),
    "ExpiredToken": (Reason.AUTH_FAILED, "sessionToken"),
    "ExpiredTokenException": (Reason.AUTH_FAILED, "sessionToken"),
    "RequestExpired": (Reason.AUTH_FAILED, ""),
    "MissingAuthenticationToken": (Reason.AUTH_FAILED, "accessKey"),
    "Blocked": (Reason.AUTH_FAILED, ""),
    "UnauthorizedOperation": (Reason.PERMISSION_DENIED, ""),
    "AccessDenied": (Reason.PERMISSION_DENIED, ""),
    "AccessDeniedException": (Reason.PERMISSION_DENIED, ""),
    "OperationNotPermitted": (Reason.PERMISSION_DENIED, ""),
    "OptInRequired": (Reason.PERMISSION_DENIED, ""),
    "PendingVerification": (Reason.PERMISSION_DENIED, ""),
    "MaxSpotInstanceCountExceeded": (Reason.QUOTA_EXCEEDED, "instanceType"),
    "InsufficientFreeAddressesInSubnet": (Reason.QUOTA_EXCEEDED, "subnetId"),
    "InsufficientInstanceCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientHostCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "InsufficientReservedInstanceCapacity": (Reason.OUT_OF_CAPACITY, "instanceType"),
    "SpotMaxPriceTooLow": (Reason.INVALID, "spotPrice"),
    "RequestLimitExceeded": (Reason.THROTTLED, ""),
    "Throttling": (Reason.THROTTLED, ""),
    "ThrottlingException": (Reason.THROTTLED, ""),
    "EC2ThrottledException": (Reason.THROTTLED, ""),
    "TooManyRequestsException": (Reason.THROTTLED, ""),
    "InternalError": (Reason.UNAVAILABLE, ""),
    "InternalFailure": (Reason.UNAVAILABLE, ""),
    "ServerInternal": (Reason.UNAVAILABLE, ""),
    "ServiceUnavailable": (Reason.UNAVAILABLE, ""),
    "Unavailable": (Reason.UNAVAILABLE, ""),
    "Unsupported": (Reason.INVALID, "instanceType"),
    "InvalidInstanceType": (Reason.INVALID, "instanceType"),
    "InvalidGroup.NotFound": (Reason.NOT_FOUND, "securityGroup"),
    "InvalidKeyPair.NotFound": (Reason.NOT_FOUND, "keypairName"),
    "InvalidSubnetID.NotFound": (Reason.NOT_FOUND, "subnetId"),
    "InvalidVpcID.NotFound": (Reason.NOT_FOUND, "vpcId"),
    "DependencyViolation": (Reason.CONFLICT, ""),
}
# Where neither the code nor its end says enough: a part of it, and the option that is to blame.
_BY_BEGINNING = {"InvalidAMIID": "ami", "InvalidSubnet": "subnetId", "InvalidVpc": "vpcId", "InvalidKey.": "sshKeyContents"}
_ADVICE = {
    Reason.AUTH_FAILED: "check the cloud credential's accessKey and secretKey, and this machine's clock",
    Reason.PERMISSION_DENIED: "let the credential's user do this in IAM",
    Reason.QUOTA_EXCEEDED: "raise the limit in AWS's Service Quotas, or use less",
    Reason.OUT_OF_CAPACITY: "try another zone or instanceType, or later",
    Reason.THROTTLED: "AWS asks for fewer calls; it is worth another try later",
}


class Refused(DriverError):
    """A call that EC2 answered with an error, or that did not get through (then `code` is empty)."""

    def __init__(self, reason: Reason, message: str, code: str = "", field: str = "") -> None:
        super().__init__(reason, message, field=field)
        self.code = code


def refusal(doing: str, code: str, said: str, status: int = 400) -> Refused:
    """`doing` says in a few words what was requested: "launching an instance"."""
    reason, field = _meaning(code, said, status)
    advice = _ADVICE.get(reason, "")
    text = f"{doing} failed: {said.strip().rstrip('.')} ({code})"
    return Refused(reason, f"{text}; {advice}" if advice else text, code, field)


def unreached(doing: str, error: BaseException) -> Refused:
    """The error for a call without a proper answer from EC2. It does not tell whether nothing answered, or something else did."""
    message = f"{doing} failed: {outbound.told(error, 'EC2')}"
    if outbound.is_refusal(error):
        return Refused(Reason.INVALID, message, field="endpoint")
    return Refused(Reason.UNAVAILABLE, message)


def _meaning(code: str, said: str, status: int) -> tuple[Reason, str]:
    if code in _BY_CODE:
        return _BY_CODE[code]
    if code.endswith("LimitExceeded"):
        return Reason.QUOTA_EXCEEDED, "instanceType" if code in ("InstanceLimitExceeded", "VcpuLimitExceeded") else ""
    blamed = next((field for start, field in _BY_BEGINNING.items() if code.startswith(start)), "")
    if "IAM Instance Profile" in said or "iamInstanceProfile" in said:
        blamed = "iamInstanceProfile"
    if code.endswith((".NotFound", ".Unavailable", "NotFoundException")) or code == "NoSuchEntity":
        return Reason.NOT_FOUND, blamed
    if status >= 500:
        return Reason.UNAVAILABLE, ""
    if code.startswith(("Invalid", "Missing", "Malformed", "Unknown")):
        return Reason.INVALID, blamed
    return Reason.FAILED, blamed
