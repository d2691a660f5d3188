"""The string formats that Kubernetes checks (`date-time`, `ipv4`, `uuid`, …); every other format is only an annotation.

Each check answers whether a text has the format, as the Go functions behind kube-openapi do, with their oddities: `byte`
refuses an empty text, `duration` takes "3 days", `ipv4` tolerates leading zeros.
"""

from __future__ import annotations

import calendar
import ipaddress
import re
import unicodedata
from collections.abc import Callable

Check = Callable[[str], bool]

_A = re.ASCII
_SHORT = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def _matches(pattern: str, flags: int = 0) -> Check:
    compiled = re.compile(pattern, flags | _A)
    return lambda text: compiled.fullmatch(text) is not None


_short_name = _matches(_SHORT)
_long_name = _matches(rf"{_SHORT}(\.{_SHORT})*")
_date_shape = re.compile(r"(\d{4})-(\d{2})-(\d{2})", _A)
_time_shape = re.compile(r"(\d{2}):(\d{2}):(\d{2})(.\d+)?(z|([+-]\d{2}:\d{2}))", _A)
_go_duration = re.compile(r"[-+]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", _A)
# Never starts inside a number, nor backtracks into one: a long text is read once.
_loose_duration = re.compile(r"(?<!\d)(\d++)\s*+([A-Za-zµ]+)", _A)
_UNITS = ("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk")
_UNIT_STARTS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_host_shape = re.compile(r"(?:[ld](?:-?[ld]{0,62})?|(?:[ld](?:[-ld]{0,61}[ld])?\.)+l{2,63})")
_mac_shape = re.compile(
    r"(?:[0-9A-Fa-f]{2}(?:([:-])(?=[0-9A-Fa-f]{2}))?){6,20}|(?:[0-9A-Fa-f]{4}(?:\.(?=[0-9A-Fa-f]{4}))?){3,10}", _A
)
_credit_card = _matches(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    r"|(?:2131|1800|35\d{3})\d{11})"
)
_atom = r"[A-Za-z0-9!#$%&'*+\-/=?^_`{|}~\u0080-\U0010ffff]+"
_dot_atom = rf"{_atom}(?:\.{_atom})*"
_quoted = r'"(?:[^"\\\x00-\x1f\x7f]|\\[ -~])*"'
_spec = rf"(?:{_dot_atom}|{_quoted})@(?:{_dot_atom}|\[(?P<literal>[0-9A-Fa-f.:]+)\])"
_word = rf"(?:[A-Za-z0-9!#$%&'*+\-/=?^_`{{|}}~.\u0080-\U0010ffff]+|{_quoted})"
_email_alone = re.compile(rf"\s*{_spec}\s*(?:\([^()]*\)\s*)?")
_email_named = re.compile(rf"\s*(?:{_word}(?:\s+|(?=[<\"])))*<{_spec}>\s*(?:\([^()]*\)\s*)?")


def is_date(text: str) -> bool:
    match = _date_shape.fullmatch(text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    return 1 <= month <= 12 and 1 <= day <= calendar.monthrange(year or 4, month)[1]


_usual_time = re.compile(r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\dZ", _A).fullmatch


def is_date_time(text: str) -> bool:
    if _usual_time(text):
        return True
    parts = text.lower().split("t")
    if len(text.encode()) < 4 or len(parts) < 2 or not is_date(parts[0]):
        return False
    match = _time_shape.fullmatch(parts[1])
    return match is not None and match.group(1) <= "23" and match.group(2) <= "59" and match.group(3) <= "59"


def is_duration(text: str) -> bool:
    if text in ("0", "+0", "-0") or (_go_duration.fullmatch(text) and _fits(text)):
        return True
    found = False
    for number, unit in _loose_duration.findall(text):
        number = number.lstrip("0") or "0"
        if len(number) > 19 or int(number) >= 1 << 63:
            return False
        lowered = unit.lower()
        found = found or lowered in _UNITS or lowered.startswith(_UNIT_STARTS)
    return found


def _fits(text: str) -> bool:
    """Durations are an int64 of nanoseconds."""
    sizes = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 6e10, "h": 3.6e12}
    total = sum(float(number) * sizes[unit] for number, unit in re.findall(r"([\d.]+)([a-zµμ]+)", text))
    return total < 2**63


def _classes(text: str) -> str:
    """Each character's class in a host name: l letter, d digit or symbol, itself for dash and dot."""
    out: list[str] = []
    for char in text:
        if char in "-.":
            out.append(char)
        elif char.isascii():
            out.append("l" if char.isalpha() else "d" if char.isdigit() or char in "$+<=>^`|~" else "x")
        else:
            kind = unicodedata.category(char)[0]
            out.append("l" if kind == "L" else "d" if kind == "S" else "x")
    return "".join(out)


def is_hostname(text: str) -> bool:
    if not _host_shape.fullmatch(_classes(text)):
        return False
    return len(text.encode()) <= 255 and all(len(part.encode()) <= 63 for part in text.split("."))


def _plain_ipv4(text: str) -> bool:
    parts = text.split(".")
    return len(parts) == 4 and all(part.isascii() and part.isdigit() and int(part) <= 255 for part in parts)


def _plain_ipv6(text: str) -> bool:
    if "%" in text or ":" not in text:
        return False
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_ipv4(text: str) -> bool:
    return "." in text and (_plain_ipv4(text) or _plain_ipv6(_without_leading_zeros(text)))


def _without_leading_zeros(text: str) -> str:
    head, colon, tail = text.rpartition(":")
    if "." not in tail:
        return text
    parts = [part.lstrip("0") or "0" if part.isdigit() else part for part in tail.split(".")]
    return head + colon + ".".join(parts)


def is_ipv6(text: str) -> bool:
    return _plain_ipv6(text)


def is_cidr(text: str) -> bool:
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or len(length) > 8:
        return False
    if _plain_ipv4(address):
        return int(length) <= 32
    return _plain_ipv6(_without_leading_zeros(address)) and int(length) <= 128


def is_mac(text: str) -> bool:
    if not _mac_shape.fullmatch(text) or len(text) < 14:
        return False
    for separator, width in ((":", 2), ("-", 2), (".", 4)):
        parts = text.split(separator)
        if len(parts) > 1:
            return all(len(part) == width for part in parts) and len(parts) * width in (12, 16, 40)
    return False


_HEX = re.compile(r"[0-9A-Fa-f]{2}")


def _escapes_ok(text: str) -> bool:
    return all(_HEX.match(part) for part in text.split("%")[1:])


def is_uri(text: str) -> bool:
    """As net/url.ParseRequestURI: an absolute URI or an absolute path."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        return False
    if text == "*":
        return True
    rest = text
    scheme = re.match(r"([A-Za-z][-A-Za-z0-9+.]*):", text, _A)
    if scheme is not None:
        rest = text[scheme.end() :]
    elif ":" in text.partition("/")[0] and text.startswith(":"):
        return False
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return scheme is not None
    if rest.startswith("//") and (scheme is not None or not rest.startswith("///")) and scheme is not None:
        authority, _, path = rest[2:].partition("/")
        return _authority_ok(authority) and _escapes_ok(path)
    return _escapes_ok(rest)


def _authority_ok(authority: str) -> bool:
    user, at, host = authority.rpartition("@")
    if at and (not re.fullmatch(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", user) or not _escapes_ok(user)):
        return False
    if host.startswith("["):
        inside, bracket, port = host[1:].partition("]")
        return bool(bracket) and _plain_ipv6(inside.partition("%25")[0]) and re.fullmatch(r"(?::\d*)?", port, _A) is not None
    name, colon, port = host.rpartition(":")
    if colon and (not re.fullmatch(r"\d*", port, _A) or ":" in name):
        return False
    checked = name if colon else host
    return re.fullmatch(r"[^\x00-\x20#^`{|}\\\[\]]*", checked) is not None and _host_escapes_ok(checked)


def _host_escapes_ok(host: str) -> bool:
    return "%" not in host or all(re.match(r"[89A-Fa-f][0-9A-Fa-f]|25", part) for part in host.split("%")[1:])


def is_email(text: str) -> bool:
    match = _email_alone.fullmatch(text) or _email_named.fullmatch(text)
    if match is None:
        return False
    literal = match.group("literal")
    return literal is None or _plain_ipv4(literal) or _plain_ipv6(literal)


def is_credit_card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _credit_card(digits):
        return False
    total = 0
    for index, digit in enumerate(reversed(digits)):
        number = int(digit) * (2 if index % 2 else 1)
        total += number - 9 if number > 9 else number
    return total % 10 == 0


def _bare_isbn(text: str) -> str:
    return re.sub(r"[\s-]+", "", text, flags=_A)


def is_isbn10(text: str) -> bool:
    digits = _bare_isbn(text)
    if not re.fullmatch(r"[0-9]{9}X|[0-9]{10}", digits):
        return False
    values = [10 if char == "X" else int(char) for char in digits]
    return sum((index + 1) * value for index, value in enumerate(values)) % 11 == 0


def is_isbn13(text: str) -> bool:
    digits = _bare_isbn(text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    total = sum(int(char) * (3 if index % 2 else 1) for index, char in enumerate(digits[:12]))
    return int(digits[12]) == (10 - total % 10) % 10


def is_short_name(text: str) -> bool:
    return len(text) <= 63 and _short_name(text)


def is_long_name(text: str) -> bool:
    return len(text) <= 253 and _long_name(text)


def _uuid(third: str = "[0-9a-f]", fourth: str = "[0-9a-f]") -> Check:
    return _matches(rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}[0-9a-f]{{3}}-?{fourth}[0-9a-f]{{3}}-?[0-9a-f]{{12}}", re.IGNORECASE)


_COLOR = r"\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"

# By normalised name: dashes are ignored, so `date-time` and `datetime` are one.
FORMATS: dict[str, Check] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "uri": is_uri,
    "email": is_email,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": is_cidr,
    "mac": is_mac,
    "uuid": _uuid(),
    "uuid3": _uuid("3"),
    "uuid4": _uuid("4", "[89ab]"),
    "uuid5": _uuid("5", "[89ab]"),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": lambda text: len(text) == 11 and re.fullmatch(r"\d{3}[- ]?\d{2}[- ]?\d{4}", text, _A) is not None,
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(rf"rgb\({_COLOR},{_COLOR},{_COLOR}\)"),
    "byte": _matches(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_date_time,
    "k8sshortname": is_short_name,
    "k8slongname": is_long_name,
}


def recognised(type_name: str, format_name: str) -> bool:
    """True if Kubernetes checks this format on a value of this type (`""`: no type given)."""
    if type_name in ("", "string"):
        return format_name.replace("-", "") in FORMATS
    if type_name == "integer":
        return format_name in ("int32", "int64")
    return type_name == "number" and format_name in ("float", "double")


def check_for(format_name: str) -> Check | None:
    return FORMATS.get(format_name.replace("-", ""))
