"""Resource quantities as exact numbers, for comparing; the codec has already made their texts canonical."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache

_SCALES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


@lru_cache(maxsize=4096)
def amount(text: str | int | float | None) -> Decimal:
    """The number a quantity stands for; what is no quantity counts as zero, since the codec refused it before."""
    if text is None:
        return Decimal(0)
    written = str(text)
    digits = written.rstrip("numkMGTPEi")
    suffix = written[len(digits) :]
    try:
        if suffix in _SCALES:
            return Decimal(digits) * _SCALES[suffix]
        return Decimal(written)
    except InvalidOperation:
        return Decimal(0)


def whole(text: str | int | float | None) -> int:
    """Rounded up, as Go's Value() does."""
    return int(amount(text).to_integral_value(ROUND_CEILING))


def fractional(text: str | int | float | None) -> bool:
    """True when the amount, rounded up to thousandths, is not a whole number."""
    return int((amount(text) * 1000).to_integral_value(ROUND_CEILING)) % 1000 != 0
