"""Numbers as people write them, the same on every surface."""

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def in_words(value: float, digits: int = 3, plain: float = 1e9) -> str:
    """A number in a few digits as people write it, with powers of ten from `plain` on: 0.5, −0.36, 50,000, 2.45×10⁹."""
    if value < 0:
        return f"−{in_words(-value, digits, plain)}"
    if value == 0 or not math.isfinite(value):
        return "∞" if value > 0 else f"{value + 0.0:g}"
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    rounded = float(f"{mantissa}e{exponent}")
    if 1e-4 <= rounded < 1e3:
        return f"{rounded:g}"
    if 1 < rounded < plain:
        return f"{rounded:,.0f}"
    power = f"10{str(int(exponent)).translate(_SUPERSCRIPTS)}"  # in small figures that every font has
    return power if float(mantissa) == 1 else f"{float(mantissa):g}×{power}"


def span(low: float, high: float, digits: int = 3) -> str:
    """What lies between two numbers: 0.2 to 0.89, in more digits where they look alike; one number where six do too."""
    for more in range(digits, 7):
        if (first := in_words(low, more)) != (last := in_words(high, more)):
            return f"{first} to {last}"
    return "not known" if math.isnan(low) else in_words(low, digits)


def plus_minus(value: float, error: float) -> str:
    """A number as far as its uncertainty reaches, which has two digits: 0.01 ± 0.11, 2.9 ± 1.5."""
    if not (abs(value) * 1e-9 < error < math.inf and math.isfinite(value)):  # none, or that of rounding
        return in_words(value)
    places = 1 - math.floor(math.log10(error))
    if not -6 <= places <= 5:
        return f"{in_words(value)} ± {in_words(error, 2)}"
    written = " ± ".join(f"{round(number, places) + 0.0:,.{max(0, places)}f}" for number in (value, error))
    return written.replace("-", "−")


def branches(depth: float) -> str:
    """A mean number of branches as every surface tells it: 10.5, 0.26, less than 0.01."""
    return f"{depth:.1f}" if depth >= 0.95 else in_words(depth, 2) if depth >= 0.01 else "less than 0.01"


def percent(value: float) -> str:
    """A share in percent, in a few digits."""
    return f"{in_words(100 * value)} %"


def times(factor: float) -> str:
    """A factor as people write it: ×1.3, ×50,000, ÷1,900."""
    if not (factor > 0 and math.isfinite(factor)):
        return "×∞" if factor > 0 else "÷∞" if factor == 0 else "×?"
    return f"×{in_words(factor)}" if factor >= 0.9995 else f"÷{in_words(1 / factor)}"
