"""Resource quantities (`500m`, `1.5Gi`, `12e6`): exact numbers with Kubernetes' own suffixes and canonical text.

A quantity is `unscaled * 10**exponent`, kept as integers, so nothing is ever lost; rounding happens where Kubernetes
rounds: finer than a nano goes up, away from zero. Parsing is cached, because the same few texts come again and again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering

DECIMAL_SI, BINARY_SI, DECIMAL_EXPONENT = "DecimalSI", "BinarySI", "DecimalExponent"

FORMAT_WRONG = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC_WRONG = "unable to parse numeric part of quantity"
SUFFIX_WRONG = "unable to parse quantity's suffix"

_MAX_INT64 = (1 << 63) - 1
_INT64_DIGITS = 18
_NANO = -9

_SHAPE = re.compile(r"([+-]?)(0*)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_TEXT = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_TEXT = {exponent: suffix for suffix, exponent in _BINARY.items()}


class QuantityError(ValueError):
    """Text that is no valid quantity; the message is Kubernetes' own."""


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    unscaled: int
    exponent: int = 0
    format: str = DECIMAL_SI
    # The text as written, where Kubernetes keeps it instead of making the canonical one.
    text: str = ""

    @classmethod
    def parse(cls, text: str) -> Quantity:
        return parse(text)

    def __str__(self) -> str:
        return self.text or _canonical(self)

    @property
    def sign(self) -> int:
        return (self.unscaled > 0) - (self.unscaled < 0)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1."""
        if self.sign != other.sign:
            return 1 if self.sign > other.sign else -1
        apart = self.exponent - other.exponent
        left, right = self.unscaled, other.unscaled
        if apart and abs(apart) > len(str(left)) + len(str(right)):
            # Scaling would make astronomically large integers for nothing: the orders of magnitude decide.
            return self.sign if apart > 0 else -self.sign
        if apart > 0:
            left *= 10**apart
        elif apart < 0:
            right *= 10**-apart
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quantity) and self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        unscaled, exponent = _strip(self.unscaled, self.exponent, 10)
        return hash((unscaled, exponent if unscaled else 0))

    def scaled(self, exponent: int = 0) -> int:
        """The number in units of 10**exponent, rounded away from zero."""
        return _rescale(self.unscaled, self.exponent, exponent)

    @property
    def value(self) -> int:
        """The quantity in whole units, rounded up as Kubernetes does."""
        return self.scaled(0)

    @property
    def milli_value(self) -> int:
        return self.scaled(-3)

    @property
    def is_integer(self) -> bool:
        """True when it is a whole number that fits into an int64."""
        if self.exponent > _INT64_DIGITS + 1 and self.unscaled:
            return False
        whole = self.scaled(0)
        return -_MAX_INT64 - 1 <= whole <= _MAX_INT64 and self == Quantity(whole)

    def as_float(self) -> float:
        if abs(self.exponent) > 5000:
            return 0.0 if self.exponent < 0 else float("inf") * self.sign if self.unscaled else 0.0
        if self.exponent < 0:
            return float(self.unscaled / _power(-self.exponent))
        try:
            return float(self.unscaled * _power(self.exponent))
        except OverflowError:
            return float("inf") * self.sign

    def add(self, other: Quantity) -> Quantity:
        """The sum, in the format of the first addend that is not zero."""
        shown_as = self.format if self.unscaled else other.format
        return self._combined(other.unscaled, other.exponent, shown_as)

    def sub(self, other: Quantity) -> Quantity:
        shown_as = self.format if self.unscaled else other.format
        return self._combined(-other.unscaled, other.exponent, shown_as)

    def _combined(self, unscaled: int, exponent: int, shown_as: str) -> Quantity:
        if not unscaled:
            return Quantity(self.unscaled, self.exponent, shown_as)
        if not self.unscaled:
            return Quantity(unscaled, exponent, shown_as)
        lowest = min(self.exponent, exponent)
        if max(self.exponent, exponent) - lowest > 10_000:
            raise QuantityError(NUMERIC_WRONG)
        total = self.unscaled * 10 ** (self.exponent - lowest) + unscaled * 10 ** (exponent - lowest)
        return Quantity(total, lowest, shown_as)


ZERO = Quantity(0, 0, DECIMAL_SI, "0")

_CACHE_LIMIT = 4096
_cache: dict[str, Quantity] = {"0": ZERO}


def parse(text: str) -> Quantity:
    """The quantity in `text`; QuantityError when it is invalid."""
    found = _cache.get(text)
    if found is None:
        found = _parse(text)
        if len(_cache) >= _CACHE_LIMIT:
            _cache.clear()
        _cache[text] = found
    return found


def from_json(value: object) -> Quantity:
    """A quantity in JSON: a string, or a bare number."""
    if isinstance(value, str):
        return parse(value.strip())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return parse(repr(value).replace("e+", "e"))
    raise QuantityError(FORMAT_WRONG)


def _parse(text: str) -> Quantity:
    match = _SHAPE.fullmatch(text)
    if not text or match is None:
        raise QuantityError(FORMAT_WRONG)
    sign, zeroes, number, fraction, suffix = match.groups()
    fraction = fraction or ""
    if not (zeroes or number or fraction or "." in text) and suffix:
        number = "0"
    kind, exponent = _interpret(suffix)
    number = number or "0"
    digits = number + fraction
    quick = _parse_small(text, sign, number, fraction, digits, kind, exponent)
    if quick is not None:
        return quick
    return _parse_large(sign, digits, len(fraction), kind, exponent)


def _interpret(suffix: str) -> tuple[str, int]:
    if (decimal := _DECIMAL.get(suffix)) is not None:
        return DECIMAL_SI, decimal
    if (binary := _BINARY.get(suffix)) is not None:
        return BINARY_SI, binary
    if len(suffix) > 1 and suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            raise QuantityError(SUFFIX_WRONG) from None
        if -(1 << 31) <= exponent < 1 << 31:
            return DECIMAL_EXPONENT, exponent
    raise QuantityError(SUFFIX_WRONG)


def _parse_small(text: str, sign: str, number: str, fraction: str, digits: str, kind: str, exponent: int) -> Quantity | None:
    """Numbers that Kubernetes keeps in an int64; some of them keep their original text."""
    if kind == BINARY_SI:
        if fraction or 15 - len(number) - int(exponent * 3 / 10) - 1 < 0:
            return None
        magnitude = int(digits)
        keeps_text = exponent % 10 == 0 and magnitude & 7 != 0
        return Quantity(-(magnitude << exponent) if sign == "-" else magnitude << exponent, 0, kind, text if keeps_text else "")
    scale = exponent - len(fraction)
    if len(digits) > _INT64_DIGITS or scale < _NANO:
        return None
    magnitude = int(digits)
    keeps_text = scale % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
    return Quantity(-magnitude if sign == "-" else magnitude, scale, kind, text if keeps_text else "")


def _parse_large(sign: str, digits: str, fraction: int, kind: str, exponent: int) -> Quantity:
    magnitude, scale = int(digits), -fraction
    if kind == BINARY_SI:
        magnitude <<= exponent
    else:
        scale += exponent
    if scale < _NANO:
        magnitude, scale = _rescale(magnitude, scale, _NANO), _NANO
    if kind == BINARY_SI:
        amount = Quantity(magnitude, scale)
        if amount.compare(Quantity(_MAX_INT64)) > 0:
            magnitude, scale = _MAX_INT64, 0
        elif magnitude and amount.compare(Quantity(1)) < 0:
            # Fractions of one can't be shown in binary.
            kind = DECIMAL_SI
    return Quantity(-magnitude if sign == "-" else magnitude, scale, kind)


def _power(exponent: int) -> int:
    return int(10**exponent)


def _rescale(unscaled: int, exponent: int, target: int) -> int:
    if exponent >= target:
        return unscaled * _power(min(exponent - target, 100_000))
    drop = target - exponent
    magnitude = abs(unscaled)
    if drop > len(str(magnitude)) + 1:
        rounded = 1 if magnitude else 0
    else:
        rounded = -(-magnitude // _power(drop))
    return rounded if unscaled >= 0 else -rounded


def _strip(unscaled: int, exponent: int, base: int) -> tuple[int, int]:
    """Move factors of `base` from the number into its exponent."""
    while unscaled and unscaled % base == 0:
        unscaled //= base
        exponent += 1
    return unscaled, exponent


def _canonical(quantity: Quantity) -> str:
    if not quantity.unscaled:
        return "0"
    shown_as = quantity.format
    if shown_as == BINARY_SI:
        whole = quantity.scaled(0)
        if -1024 < whole < 1024 or quantity.compare(Quantity(whole)) != 0:
            shown_as = DECIMAL_SI
        else:
            amount, times = _strip(whole, 0, 1024)
            return f"{amount}{_BINARY_TEXT.get(times * 10, '')}"
    amount, exponent = _strip(quantity.unscaled, quantity.exponent, 10)
    over = exponent % 3
    amount, exponent = amount * 10**over, exponent - over
    if shown_as == DECIMAL_SI:
        return f"{amount}{_DECIMAL_TEXT.get(exponent, '')}"
    return f"{amount}e{exponent}" if exponent else str(amount)
