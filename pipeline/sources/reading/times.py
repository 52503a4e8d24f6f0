"""Dates and times of day in text, as ISO 8601 writes them: `2024-03-05T10:11:12.5+01:00`, or the date alone.

They become whole numbers of a unit since 1970, in UTC. A time without a zone counts as one in UTC. Whole numbers that
float64 cannot hold, such as `20100313073721718`, stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from gnnloom.pipeline.sources.parsers.numerals import MINUS, PLUS, POINT, QUOTE, SPACE, ZERO
from gnnloom.pipeline.sources.reading.text_layout import is_count
from gnnloom.storage.kernels import kernel
from gnnloom.storage.matrix.ticks import MOST_TICKS, WHOLE

_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIME: Final = re.compile(
    rf'"?{_DATE}([Tt ]\d\d:\d\d(:\d\d(\.(?P<digits>\d+))?)?\s*(?P<zone>[Zz]|[+-]\d\d(:?\d\d)?)?)?"?', re.ASCII
)
_WHOLE: Final = re.compile(r'"?[-+]?\d{1,19}"?', re.ASCII)
#: Digits after the point of microseconds and of nanoseconds; and what stands for them in whole numbers.
_MICRO, _NANO, _NO_POINT = 6, 9, -1
#: Faults: not a time; more digits than the unit has; with a zone among times without one, or the other way round; and
#: beyond the years that the unit has.
NO_TIME, FINER, OTHER_ZONE, BEYOND_UNIT = range(1, 5)
_NINE, _COLON, _LATER, _SMALL_LATER, _UTC, _SMALL_UTC = map(ord, "9:TtZz")
#: Digits of the longest whole number.
_MOST_DIGITS: Final = 19
#: Seconds of about 292 years, the most that nanoseconds have on both sides of 1970.
_NANO_SECONDS: Final = 9_214_000_000

#: Seconds from 1970 to 1990, and to 2100.
_YEARS: Final = 631_152_000, 4_102_444_800


@dataclass(frozen=True)
class TimeForm:
    """Form of the times of a text file.

    Attributes:
        digits: digits after the point of the unit in which they are stored; -1 if they are whole numbers.
        has_zone: each ends with ``Z`` or an offset from UTC.
    """

    digits: int
    has_zone: bool

    @property
    def unit(self) -> str:
        """The unit, as NumPy calls it; see also :data:`~gnnloom.storage.matrix.ticks.WHOLE`."""
        if self.digits == _NO_POINT:
            return WHOLE
        return "ns" if self.digits == _NANO else "us"

    def reason(self, fault: int, text: str) -> str:
        """Reason why a time is refused."""
        if self.digits == _NO_POINT:
            return f"expected a whole number up to {MOST_TICKS:,}, as the times of the first lines are, found {text!r}"
        zone = (
            "with a zone (Z or an offset), as the first time has" if self.has_zone else "without a zone, as the first"
        )
        return {
            FINER: f"expected a time with up to {self.digits} digits after the point, as the first lines have",
            OTHER_ZONE: f"expected a time {zone}",
            BEYOND_UNIT: "expected a time from 1678 to 2261, which nanoseconds can count",
        }.get(fault, "expected a time such as 2024-03-05T10:11:12, as the first line has") + f", found {text!r}"


def find_times(cells: Sequence[str]) -> TimeForm | None:
    """Form of the first times of a file; None if the first one is not a date.

    >>> find_times(["2024-03-05T10:11:12Z"]), find_times(["1709633472"])
    (TimeForm(digits=6, has_zone=True), None)
    """
    found = [_TIME.fullmatch(cell.strip()) for cell in cells]
    if not found or found[0] is None:
        return None
    digits = max(len(each["digits"] or "") for each in found if each is not None)
    return TimeForm(_NANO if digits > _MICRO else _MICRO, found[0]["zone"] is not None)


def is_whole(cell: str) -> bool:
    """Whether a cell is a whole number of up to 19 digits."""
    return _WHOLE.fullmatch(cell.strip()) is not None


def find_whole(cells: Sequence[str]) -> TimeForm | None:
    """Form of times if the first is a whole number, and float64 lacks one of the first ones; None for others.

    >>> find_whole(["20100313073721718"]), find_whole(["1709633472"])
    (TimeForm(digits=-1, has_zone=False), None)
    """
    if not cells or not is_whole(cells[0]):
        return None
    numbers = [int(cell.strip().strip('"')) for cell in filter(is_whole, cells)]
    return None if all(int(float(number)) == number for number in numbers) else TimeForm(_NO_POINT, has_zone=False)


@kernel
def _digits(text: Any, at: int, stop: int, count: int) -> int:
    """The value of the next digits; -1 if there are fewer digits."""
    value = 0
    if at + count > stop:
        return -1
    for k in range(at, at + count):
        if not ZERO <= text[k] <= _NINE:
            return -1
        value = 10 * value + (text[k] - ZERO)
    return value


@kernel
def _days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Gregorian calendar; Howard Hinnant's days_from_civil."""
    year -= month <= 2
    era = year // 400
    of_era = year - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@kernel
def _is_date(year: int, month: int, day: int) -> bool:
    if not (year >= 0 and 1 <= month <= 12 and day >= 1):
        return False
    last = 31 - (month - 1) % 7 % 2
    if month == 2:
        last = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return day <= last


@kernel
def _parse_zone(text: Any, at: int, stop: int) -> tuple[int, int]:
    """Seconds of the offset of a zone, and a fault."""
    if at + 1 == stop and (text[at] == _UTC or text[at] == _SMALL_UTC):
        return 0, 0
    if text[at] != PLUS and text[at] != MINUS:
        return 0, NO_TIME
    sign = -1 if text[at] == MINUS else 1
    hours, minutes = _digits(text, at + 1, stop, 2), 0
    at += 3
    if at < stop:
        at += text[at] == _COLON
        minutes = _digits(text, at, stop, 2)
        at += 2
    if not (0 <= hours < 24 and 0 <= minutes < 60) or at != stop:
        return 0, NO_TIME
    return sign * (3600 * hours + 60 * minutes), 0


@kernel
def _parse_fraction(text: Any, at: int, stop: int, digits: int) -> tuple[int, int, int]:
    """The digits after a point as a whole number of units, the position after them, and a fault."""
    fraction, count, wrong = 0, 0, 0
    while at < stop and ZERO <= text[at] <= _NINE:
        if count < digits:
            fraction = 10 * fraction + (text[at] - ZERO)
        elif text[at] != ZERO:
            wrong = FINER
        at, count = at + 1, count + 1
    for _ in range(count, digits):
        fraction *= 10
    return fraction, at, wrong if count else NO_TIME


@kernel
def _parse_clock(text: Any, at: int, stop: int, digits: int) -> tuple[int, int, int, int]:
    """Parse a time of day; returns its seconds, its fraction in units, the position after it, and a fault."""
    hour, minute, second, fraction, wrong = _digits(text, at, stop, 2), _digits(text, at + 3, stop, 2), 0, 0, 0
    if not (0 <= hour < 24 and 0 <= minute < 60) or text[at + 2] != _COLON:
        return 0, 0, at, NO_TIME
    at += 5
    if at < stop and text[at] == _COLON:
        second = _digits(text, at + 1, stop, 2)
        at += 3
        if not 0 <= second < 60:
            return 0, 0, at, NO_TIME
        if at < stop and text[at] == POINT:
            fraction, at, wrong = _parse_fraction(text, at + 1, stop, digits)
    return 3600 * hour + 60 * minute + second, fraction, at, wrong


@kernel
def _parse_whole(text: Any, at: int, stop: int) -> tuple[int, int]:
    """Parse a whole number; returns it and a fault."""
    is_negative = at < stop and text[at] == MINUS
    at += at < stop and (text[at] == MINUS or text[at] == PLUS)
    if at == stop or stop - at > _MOST_DIGITS:
        return 0, NO_TIME
    value = 0
    for k in range(at, stop):
        if not ZERO <= text[k] <= _NINE:
            return 0, NO_TIME
        digit = text[k] - ZERO
        if value > (MOST_TICKS - digit) // 10:
            return 0, BEYOND_UNIT
        value = 10 * value + digit
    return (-value if is_negative else value), 0


@kernel
def parse_time(text: Any, at: int, stop: int, digits: int, has_zone: bool) -> tuple[int, int]:
    """Parse a time.

    Args:
        text: bytes; ``at`` to ``stop`` are the time, perhaps in double quotes.
        digits: digits after the point of the unit; -1 for a whole number.
        has_zone: whether the time must have a zone; it must have none otherwise.

    Returns:
        The time in units since 1970, and the fault (0: none).
    """
    if stop - at > 1 and text[at] == QUOTE and text[stop - 1] == QUOTE:
        at, stop = at + 1, stop - 1
    if digits < 0:
        return _parse_whole(text, at, stop)
    year, month, day = _digits(text, at, stop, 4), _digits(text, at + 5, stop, 2), _digits(text, at + 8, stop, 2)
    if not _is_date(year, month, day) or text[at + 4] != MINUS or text[at + 7] != MINUS:
        return 0, NO_TIME
    seconds, fraction, wrong, zone, has_own = 86400 * _days(year, month, day), 0, 0, 0, False
    at += 10
    if at < stop:
        if not (text[at] == _LATER or text[at] == _SMALL_LATER or text[at] == SPACE):
            return 0, NO_TIME
        clock, fraction, at, wrong = _parse_clock(text, at + 1, stop, digits)
        while at < stop and text[at] == SPACE:
            at += 1
        has_own = at < stop
        if has_own and wrong != NO_TIME:
            zone, fault = _parse_zone(text, at, stop)
            wrong = fault or wrong
        seconds += clock - zone
    if not wrong and has_own != has_zone:
        wrong = OTHER_ZONE
    if not wrong and digits == _NANO and not -_NANO_SECONDS < seconds < _NANO_SECONDS:
        wrong = BEYOND_UNIT
    return seconds * 10**digits + fraction, wrong


@kernel
def parse_times(text: Any, offset: Any, digits: int, has_zone: bool, ticks: Any) -> tuple[int, int]:
    """Parse times that follow one another.

    Args:
        text: (num_bytes,) uint8.
        offset: (num_times + 1,) int64 where each time begins, and the end.
        digits, has_zone: of :func:`parse_time`.
        ticks: (num_times,) int64, filled with the times.

    Returns:
        Number of the first time that is wrong (-1: none), and its fault.
    """
    for number in range(len(ticks)):
        ticks[number], wrong = parse_time(text, offset[number], offset[number + 1], digits, has_zone)
        if wrong:
            return number, wrong
    return -1, 0


def count_seconds(cells: Sequence[str]) -> bool:
    """Whether cells are whole seconds or milliseconds since 1970, in the years from 1990 to 2100.

    >>> count_seconds(["1217567877", "1217573801"]), count_seconds(["12", "1217573801"])
    (True, False)
    """
    numbers = [int(cell) for cell in cells if is_count(cell)]
    return len(numbers) == len(cells) > 0 and any(
        all(unit * _YEARS[0] <= number < unit * _YEARS[1] for number in numbers) for unit in (1, 1000)
    )
