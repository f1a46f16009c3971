"""Cells that spreadsheets open as text."""


def is_formula(text: str) -> bool:
    """Whether a spreadsheet that opens a file would calculate what a cell says; numbers and single signs are none.

    >>> is_formula("=1+1"), is_formula("@SUM(A1)"), is_formula("-1.5"), is_formula("+"), is_formula("<=50K")
    (True, True, False, False, False)
    """
    if len(text) < 2 or not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def harmless(cell: object) -> str:
    """Return a cell that no spreadsheet takes for a formula.

    >>> harmless("=1+1"), harmless(3)
    ("'=1+1", '3')
    """
    text = str(cell)
    return f"'{text}" if is_formula(text) else text
