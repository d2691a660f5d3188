"""Quantities in objects that the codec has passed: comparing and rounding what :mod:`remuda.kube.quantity` reads."""

from __future__ import annotations

from remuda.kube import quantity
from remuda.kube.quantity import Quantity

ZERO = quantity.parse("0")


def amount(value: str | int | float | None) -> Quantity:
    return ZERO if value is None else quantity.from_json(value)


def whole(value: str | int | float | None) -> int:
    """Rounded up, as Go's Value() does."""
    return amount(value).value


def fractional(value: str | int | float | None) -> bool:
    """True when the amount, rounded up to thousandths, is not a whole number."""
    return amount(value).milli_value % 1000 != 0
