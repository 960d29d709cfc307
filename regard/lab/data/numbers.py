"""Numbers as text: parsing, and remedies for unsupported notations."""

import re

_SPACES = "\u00a0\u202f\u2009\u2007"  # no-break, narrow no-break, thin and figure space

# 1,234,567 and 12,34,567 (India), 1.234.567,89, 1 234, 1'234.50
_grouped = re.compile(
    rf"([+−-]?)([1-9]\d{{0,2}}(?:([.,'’_ {_SPACES}])\d{{3}})(?:\3\d{{3}})*"
    r"|[1-9]\d?(?:,\d\d)+,\d{3})(?:([.,])(\d+))?"
)


def parse_number(text: str) -> float | None:
    """Return a text as a number, including NaN and infinity, or None if it is not a number.

    >>> parse_number("−2.5"), parse_number(" 1e-3 "), parse_number("1_000"), parse_number("two")
    (-2.5, 0.001, None, None)
    """
    try:
        return None if "_" in text else float(text.replace("−", "-"))
    except ValueError:
        return None


def remedy(text: str) -> str:
    """Return how to write a number with thousands separators or a decimal comma, or "".

    >>> remedy("1 234,56")
    'write it without thousands separators and with a decimal point: 1234.56'
    >>> remedy("12,500")
    'write 12500 if the comma separates thousands, 12.500 if it is a decimal comma'
    """
    text = text.strip()
    decimal = text.replace(",", ".") if text.count(",") == 1 else ""
    if decimal and parse_number(decimal) is None:
        decimal = ""
    groups = _grouped.fullmatch(text)
    if not groups or groups[4] == (groups[3] or ","):
        return f"write it with a decimal point: {decimal}" if decimal else ""
    sign, digits, _, point, fraction = groups.groups()
    whole = sign + re.sub(r"\D", "", digits) + (f".{fraction}" if fraction else "")
    if decimal and point is None:
        return f"write {whole} if the comma separates thousands, {decimal} if it is a decimal comma"
    like_it = " and numbers such as 1.500" if "." in digits else ""  # which is read as 1.5
    with_point = " and with a decimal point" if point == "," else ""
    return f"write it{like_it} without thousands separators{with_point}: {whole}"
