"""Numbers with a decimal point or comma, and with the other mark between thousands.

``1,5`` in a cell is one and a half. ``1,500`` can be one and a half or fifteen hundred: a reader refuses it unless the
decimal mark is given. The same holds for ``1.500`` in a table with semicolons, which spreadsheets write if the comma is
the decimal mark, unless another number shows that the point is the decimal mark.
"""

import re
from typing import Literal

Decimal = Literal["comma", "point"]

_WITH_COMMA = re.compile(r"[+-]?(\d+,\d*|,\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_WITH_POINT = re.compile(r"[+-]?(\d+\.\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_COMMAS_BETWEEN_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
_POINTS_BETWEEN_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?", re.ASCII)


class DecimalMarks:
    """A reader of the numbers of one file.

    Args:
        decimal: the mark before a number's decimals; None: inferred from the cells, which must then all have the same
            mark.
    """

    def __init__(self, decimal: Decimal | None = None) -> None:
        self._decimal = decimal
        self._mark: Decimal | None = None
        self._perhaps_thousands = ""  # the first cell with a point that can stand between thousands
        self._point_is_certain = False

    def plain(self, cell: str) -> str:
        """Return a cell in the notation that Python reads; cells that are not numbers are returned unchanged.

        Raises:
            ValueError: the number is ambiguous; the message names the option that settles it.

        Example:
            >>> DecimalMarks().plain("1,5")
            '1.5'
            >>> DecimalMarks("point").plain("1,500")
            '1500'
        """
        if "," not in cell and "." not in cell:
            return cell
        if self._decimal == "point":
            return cell.replace(",", "") if _COMMAS_BETWEEN_THOUSANDS.fullmatch(cell) else cell
        if self._decimal == "comma":
            return _of_commas(cell)
        return self._by_earlier_cells(cell)

    def check_points(self) -> None:
        """Raise `ValueError` if every number with a point can also have the point between thousands."""
        if (cell := self._perhaps_thousands) and not self._point_is_certain:
            raise ValueError(
                f"{cell!r} can be {cell} or {cell.replace('.', '')}, and so can all numbers with a point here; say "
                "--decimal point or --decimal comma"
            )

    def _by_earlier_cells(self, cell: str) -> str:
        if _WITH_POINT.fullmatch(cell):
            self._note_mark("point", cell)
            if not _POINTS_BETWEEN_THOUSANDS.fullmatch(cell):  # a zero before the point, or not three digits after it
                self._point_is_certain = True
            self._perhaps_thousands = self._perhaps_thousands or cell
            return cell
        grouped = _COMMAS_BETWEEN_THOUSANDS.fullmatch(cell)
        if _WITH_COMMA.fullmatch(cell) and (not grouped or self._mark == "comma"):
            self._note_mark("comma", cell)
            return cell.replace(",", ".")
        # One comma and three digits: both readings are common, and a factor of 1000 apart.
        if grouped and cell.count(",") == 1 and "." not in cell:
            parts = cell.split(",")
            raise ValueError(
                f"{cell!r} can be {parts[0]}.{parts[1]} or {''.join(parts)}; say --decimal comma or --decimal point"
            )
        if grouped:
            raise ValueError(f"{cell!r} has commas between thousands; say --decimal point")
        if _POINTS_BETWEEN_THOUSANDS.fullmatch(cell):
            raise ValueError(f"{cell!r} has points between thousands; say --decimal comma")
        return cell

    def _note_mark(self, mark: Decimal, cell: str) -> None:
        if self._mark not in (None, mark):
            raise ValueError(
                f"{cell!r} has a decimal {mark}, and a number before it a {self._mark}; say --decimal comma or "
                "--decimal point, whichever stands before the decimals"
            )
        self._mark = mark


def _of_commas(cell: str) -> str:
    if _POINTS_BETWEEN_THOUSANDS.fullmatch(cell):
        return cell.replace(".", "").replace(",", ".")
    if _WITH_POINT.fullmatch(cell):
        raise ValueError(f"{cell!r} has a decimal point, and --decimal comma was given")
    return cell.replace(",", ".") if _WITH_COMMA.fullmatch(cell) else cell
