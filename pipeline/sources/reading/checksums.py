"""CRC-32 of bytes that are read in ranges, combined from those of the ranges."""

from __future__ import annotations

#: The polynomial of CRC-32 (IEEE 802.3) without its highest term, lowest bit first.
_POLYNOMIAL = 0xEDB88320


def combined_crc(first: int, second: int, second_bytes: int) -> int:
    """CRC-32 of two ranges of bytes one after the other.

    Appending n bytes multiplies the first checksum by x^(8n), modulo the polynomial; see crc32_combine of zlib.

    Args:
        first, second: checksums of the two ranges.
        second_bytes: length of the second range.
    """
    return _multiplied(_power(8 * second_bytes), first) ^ second


def _power(exponent: int) -> int:
    """x^exponent modulo the polynomial, by repeated squaring."""
    result, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            result = _multiplied(square, result)
        square = _multiplied(square, square)
        exponent >>= 1
    return result


def _multiplied(a: int, b: int) -> int:
    """Product of two polynomials modulo the polynomial; the highest bit is the constant term."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product
