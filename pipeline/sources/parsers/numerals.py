"""Parsers for ids (to int64, exactly, eight digits at a time) and decimal numbers (to double).

Every buffer consists of whole lines. The line feed at its end stops every loop here, so positions are compared with
the length of the buffer only before eight bytes are loaded at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gnnloom.storage.kernels import Kernel, kernel

# Faults of a line; 0 means none.
NO_ID, NEGATIVE, TOO_LARGE, ONE_ID, EXTRA, NO_NUMBER, NOT_FINITE, BEYOND, TOO_FEW, TOO_MANY, EMPTY = range(1, 12)
INEXACT, PADDED, ROUNDED, DECIMAL_COMMA, OPEN_COMMENT, MISSING, QUOTED, FRACTION, BLANK_WITHIN = range(12, 21)

#: Expected forms of a time, in text and in other files.
INEXACT_TIME = "expected a time that float64 holds with all its digits; count larger units, or subtract the first time"

REASONS = {
    NO_ID: "expected a vertex id (digits only)",
    NEGATIVE: "expected a vertex id, found a negative number",
    TOO_LARGE: "expected a vertex id below 2^63, found a larger one",
    ONE_ID: "expected two vertex ids, found one; remove the line if it is not an edge",
    EXTRA: "found more columns than expected",
    NO_NUMBER: "expected a number",
    NOT_FINITE: "expected a finite float32, found NaN, infinity or a number too large",
    BEYOND: "the vertex id is not below the stated number of vertices",
    TOO_FEW: "found too few columns",
    TOO_MANY: "found too many columns",
    EMPTY: "expected a number, found an empty cell",
    INEXACT: INEXACT_TIME,
    PADDED: "a vertex id with leading zeros would be the same vertex as the number without them",
    ROUNDED: "expected a vertex id, found a decimal number beyond 2^53, whose last digits are rounded",
    DECIMAL_COMMA: (
        "a comma follows the number; if it precedes decimals, add `--decimal ,`; if it separates thousands, remove it"
    ),
    BLANK_WITHIN: "a blank within a number; if it separates thousands, remove it",
    OPEN_COMMENT: "the line begins as comments do, after the first edge",
    MISSING: "a vertex id is missing; remove the line, or add `--ids names` if this is the name of a vertex",
    FRACTION: "expected an integer, found a decimal number",
    QUOTED: "a double quote is opened and not closed after a number",
}

TAB, FEED, RETURN, SPACE = 9, 10, 13, 32
HASH, PERCENT, PLUS, COMMA, MINUS, POINT, ZERO = 35, 37, 43, 44, 45, 46, 48
QUOTE, SEMICOLON = 34, 59
LOWER = 32  # the bit that makes an upper-case letter lower-case

#: Length of the longest run of digits that cannot overflow int64.
SAFE_DIGITS = 18
#: Beyond these exponents of ten, a number of up to 19 digits is zero or infinite in float32.
_MIN_EXPONENT, _MAX_EXPONENT = -70, 40
#: Doubles from here on round to infinity in float32: half a unit in the last place above its maximum.
FLOAT32_LIMIT = 3.4028235677973366e38


def _power_pairs() -> tuple[Any, Any]:
    """The nearest double to 10^k and the remainder, for k from _MIN_EXPONENT to _MAX_EXPONENT."""
    exact = [Fraction(10) ** k for k in range(_MIN_EXPONENT, _MAX_EXPONENT + 1)]
    high = [float(power) for power in exact]
    low = [float(power - Fraction(nearest)) for power, nearest in zip(exact, high, strict=True)]
    return np.array(high), np.array(low)


_POWER_HIGH, _POWER_LOW = _power_pairs()


def _load_digits() -> Any:
    from gnnloom.pipeline.sources.parsers.eight_digits import up_to_eight_digits  # noqa: PLC0415 - imports numba

    return up_to_eight_digits


#: The number formed by the leading digits of the next eight bytes of a text, and the number of those digits.
up_to_eight_digits = Kernel(_load_digits)


def is_count(word: str) -> bool:
    """Whether a word of a header is a number from 0 on that fits int64; Python also calls a superscript a digit."""
    return word.isascii() and word.isdigit() and len(word) <= SAFE_DIGITS


@kernel(inline="always")
def is_blank(byte: int) -> bool:
    """Whether a byte is a space or a tab."""
    return byte == SPACE or byte == TAB  # noqa: PLR1714 - faster than a tuple in numba


@kernel
def skip_blanks(text: Any, at: int) -> int:
    """Skip spaces and tabs."""
    while is_blank(text[at]):
        at += 1
    return at


@kernel
def skip_separator(text: Any, at: int) -> int:
    """Skip spaces and tabs, and at most one comma among them."""
    while is_blank(text[at]):
        at += 1
    if text[at] == COMMA:
        at += 1
        while is_blank(text[at]):
            at += 1
    return at


@kernel
def is_end(text: Any, at: int) -> Any:
    """Whether a line ends here, with LF or CR LF."""
    return text[at] == FEED or (text[at] == RETURN and text[at + 1] == FEED)


@kernel
def next_line(text: Any, at: int) -> int:
    """Position of the next line."""
    while text[at] != FEED:
        at += 1
    return at + 1


@kernel
def parse_id(text: Any, at: int) -> tuple[Any, int, int]:
    """Parse an id; returns it, the position after it, and the fault (0: none)."""
    first = at
    value: Any = 0
    if at + 8 <= len(text):
        value, count = up_to_eight_digits(text, at)
        at += count
    digit = np.int64(text[at]) - ZERO
    while 0 <= digit <= 9:
        value = value * 10 + digit
        at += 1
        digit = np.int64(text[at]) - ZERO
    if at == first:
        return 0, at, NEGATIVE if text[at] == MINUS else NO_ID
    if at - first > SAFE_DIGITS:
        while text[first] == ZERO and first < at:
            first += 1
        # A number of 19 digits is less than 2^64, so a value beyond int64 has wrapped around to a negative one.
        if at - first > SAFE_DIGITS + 1 or value < 0:
            return 0, at, TOO_LARGE
    return value, at, 0


@kernel
def parse_vertex(text: Any, at: int, strict: bool) -> tuple[Any, int, int]:
    """Parse an id, perhaps in double quotes or followed by a point and zeros; returns what :func:`parse_id` does.

    Args:
        strict: whether an id with leading zeros is a fault, because another spelling may be another vertex.
    """
    first = at + (text[at] == QUOTE)
    value, stop, wrong = parse_id(text, first)
    if not wrong and strict and text[first] == ZERO and stop - first > 1:
        wrong = PADDED
    if not wrong and text[stop] == POINT:
        stop += 1
        while text[stop] == ZERO:
            stop += 1
        # An id that was written as a decimal number was a double before.
        if value > 1 << 53:
            wrong = ROUNDED
    if not wrong and first > at:
        wrong = 0 if text[stop] == QUOTE else NO_ID
        stop += 1
    return value, stop, wrong


@kernel
def _parse_named(text: Any, at: int, sign: float) -> tuple[float, int, int]:
    """Parse NaN or infinity in upper or lower case."""
    if text[at] != FEED and text[at + 1] != FEED:
        first, second, third = (
            np.int64(text[at]) | LOWER,
            np.int64(text[at + 1]) | LOWER,
            np.int64(text[at + 2]) | LOWER,
        )
        if first == ord("n") and second == ord("a") and third == ord("n"):
            return np.nan, at + 3, 0
        if first == ord("i") and second == ord("n") and third == ord("f"):
            at += 3
            while ord("a") <= (np.int64(text[at]) | LOWER) <= ord("z"):
                at += 1
            return sign * np.inf, at, 0
    return 0.0, at, NO_NUMBER


@kernel
def _parse_exponent(text: Any, at: int) -> tuple[int, int, int]:
    """Parse the exponent after an "e"; returns it, the position after it, and the fault (0: none)."""
    negative = text[at] == MINUS
    if negative or text[at] == PLUS:
        at += 1
    first = at
    exponent: Any = 0
    digit = np.int64(text[at]) - ZERO
    while 0 <= digit <= 9:
        # Exponents this large mean 0 or infinity; the limit prevents overflow.
        exponent = min(exponent * 10 + digit, 100_000)
        at += 1
        digit = np.int64(text[at]) - ZERO
    return -exponent if negative else exponent, at, 0 if at > first else NO_NUMBER


@kernel
def _two_product(a: float, b: float) -> tuple[float, float]:
    """The double nearest to ``a * b`` and the rounding error (Dekker 1971, with Veltkamp's splitting)."""
    # Exact only in the order given, so these kernels must not use fastmath.
    product = a * b
    split = 134217729.0 * a  # 2^27 + 1 halves the 53 bits of a double
    a_high = split - (split - a)
    split = 134217729.0 * b
    b_high = split - (split - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@kernel
def scale(mantissa: int, exponent: int) -> Any:
    """``mantissa * 10^exponent`` for up to 18 digits, rounded."""
    if mantissa == 0 or exponent < _MIN_EXPONENT:
        return 0.0
    if exponent > _MAX_EXPONENT:
        return np.inf
    product, rest = _scaled(mantissa, exponent)
    return product + rest


@kernel
def _scaled(mantissa: int, exponent: int) -> tuple[float, float]:
    """``mantissa * 10^exponent`` for up to 18 digits, as a sum of two doubles with an error below 2^-100."""
    # Below 10^18, the double nearest to the mantissa fits int64, so the difference is exact.
    high = np.float64(mantissa)
    low = np.float64(mantissa - np.int64(high))
    power, power_low = _POWER_HIGH[exponent - _MIN_EXPONENT], _POWER_LOW[exponent - _MIN_EXPONENT]
    product, error = _two_product(high, power)
    return product, error + (high * power_low + low * power)


@kernel
def parse_number(text: Any, at: int) -> tuple[float, int, int]:
    """Parse a decimal number; returns it as a double, the position after it, and the fault (0: none).

    The result is correctly rounded for up to 18 significant digits, except for numbers within 2^-100 of the midpoint
    of two doubles; further digits are dropped. Numbers outside of float32's range become 0 or infinite.
    """
    sign = 1.0
    if text[at] == MINUS or text[at] == PLUS:
        sign = -1.0 if text[at] == MINUS else 1.0
        at += 1
    mantissa: Any = 0
    exponent, kept, digits, point = 0, 0, 0, False
    while True:
        byte = np.int64(text[at])
        if ZERO <= byte <= ZERO + 9:
            digits += 1
            if kept < SAFE_DIGITS:
                mantissa = mantissa * 10 + (byte - ZERO)
                # Leading zeros do not use up any of the digits that are kept.
                kept += mantissa != 0
                exponent -= point
            else:
                # A dropped digit before the point still multiplies the number by ten.
                exponent += not point
        elif byte == POINT and not point:
            point = True
        else:
            break
        at += 1
    if digits == 0:
        return _parse_named(text, at, sign) if not point else (0.0, at, NO_NUMBER)
    wrong = 0
    if (np.int64(text[at]) | LOWER) == ord("e"):
        more, at, wrong = _parse_exponent(text, at + 1)
        exponent += more
    return sign * scale(mantissa, exponent), at, wrong


@kernel
def parse_value(text: Any, at: int, exact: bool) -> tuple[float, int, int]:
    """Parse the value of an edge, perhaps in double quotes; returns what :func:`parse_number` does.

    A value must be below the limit of float32.

    Args:
        exact: whether the value is a time. A double then has to have all its digits: rounded to the number of written
            digits, it is the same decimal. So numbers with up to 15 digits, and doubles that were written with 17 or
            more, are times; numbers with more digits than tell doubles apart are not.
    """
    first = at + (text[at] == QUOTE)
    value, after, wrong = parse_number(text, first)
    # Written so that NaN, for which every comparison is false, is refused as well.
    if not wrong and not abs(value) < FLOAT32_LIMIT:
        wrong = NOT_FINITE
    if not wrong and exact and not _has_all_digits(text, first, abs(value)):
        wrong = INEXACT
    if not wrong and first > at:
        wrong = 0 if text[after] == QUOTE else DECIMAL_COMMA if text[after] == COMMA else QUOTED
        after += 1
    return value, after, wrong


@kernel
def _has_all_digits(text: Any, at: int, value: float) -> Any:
    """Whether the parsed double, rounded to the number of written digits, is the same decimal; ignores the sign."""
    at += text[at] == MINUS or text[at] == PLUS
    # The first significant digit, and the number of digits from there on.
    first: Any = 0
    second: Any = 0
    exponent, kept, point = 0, 0, False
    while ZERO <= text[at] <= ZERO + 9 or (text[at] == POINT and not point):
        digit = np.int64(text[at]) - ZERO
        if text[at] == POINT:
            point = True
        elif kept < SAFE_DIGITS:
            first = first * 10 + digit
            exponent -= point
        elif kept < 2 * SAFE_DIGITS:
            second = second * 10 + digit
            exponent -= point
        else:
            exponent += not point
        kept += bool(digit >= 0 and first != 0)
        at += 1
    if (np.int64(text[at]) | LOWER) == ord("e"):
        exponent += _parse_exponent(text, at + 1)[0]
    num_second = min(max(0, kept - SAFE_DIGITS), SAFE_DIGITS)
    if first == 0:
        return True
    if exponent < _MIN_EXPONENT or exponent + num_second > _MAX_EXPONENT:
        return False
    unit = _POWER_HIGH[exponent - _MIN_EXPONENT]
    high, low = _scaled(first, exponent + num_second)
    # At most half a unit of the last digit, about: ties are rounded to either side. The difference itself is rounded
    # too, by less than 2^-98 of the number.
    return abs((high - value) + (low + second * unit)) <= 0.500001 * unit + value * 2.0**-98


def word_numbers(words: Iterable[str]) -> NDArray[np.int64]:
    """(num_words,) int64 the letters of words of at most 12 lower-case letters, each word as one number."""
    return np.array([sum((ord(at) - ord("a") + 1) << 5 * k for k, at in enumerate(word)) for word in words], np.int64)


@kernel
def has_byte(text: Any, start: int, stop: int, byte: int) -> bool:
    """Whether a byte is among some of a text."""
    while start < stop and text[start] != byte:
        start += 1
    return start < stop


@kernel
def parse_cell(text: Any, at: int, words: Any, codes: Any) -> tuple[float, int, int]:
    """Parse a number or a known word, in any case and perhaps in double quotes; returns as :func:`parse_number`.

    Args:
        words: (num_words,) int64 result of :func:`word_numbers`.
        codes: (num_words,) float64 the number that each word stands for.
    """
    first = at + (text[at] == QUOTE)
    stop, number = first, np.int64(0)
    while stop - first < 12 and ord("a") <= (np.int64(text[stop]) | LOWER) <= ord("z"):
        number |= ((np.int64(text[stop]) | LOWER) - ord("a") + 1) << (5 * (stop - first))
        stop += 1
    for known in range(words.size):
        if number == words[known]:
            return codes[known], stop + (first > at and text[stop] == QUOTE), 0
    return parse_number(text, at)
