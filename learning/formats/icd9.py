"""ICD-9-CM diagnosis codes, grouped into the chapters of the classification (WHO 1977; CDC/NCHS tabular list)."""

from __future__ import annotations

from bisect import bisect_right

_CHAPTERS = (
    (1, "infectious and parasitic"),
    (140, "neoplasms"),
    (240, "endocrine, nutritional, metabolic, immunity"),
    (280, "blood"),
    (290, "mental"),
    (320, "nervous system and sense organs"),
    (390, "circulatory"),
    (460, "respiratory"),
    (520, "digestive"),
    (580, "genitourinary"),
    (630, "pregnancy and childbirth"),
    (680, "skin"),
    (710, "musculoskeletal"),
    (740, "congenital"),
    (760, "perinatal"),
    (780, "symptoms and ill-defined"),
    (800, "injury and poisoning"),
)
_STARTS = [start for start, _ in _CHAPTERS]
DIABETES = "diabetes mellitus"
EXTERNAL_CAUSES = "external causes"
SUPPLEMENTARY = "supplementary factors"

ICD9_GROUPS: tuple[str, ...] = (*(name for _, name in _CHAPTERS), DIABETES, EXTERNAL_CAUSES, SUPPLEMENTARY)
"""The seventeen chapters, the two supplementary classifications (E and V codes), and diabetes (250) on its own."""


def icd9_group(code: str) -> str:
    """Group of an ICD-9-CM code.

    Raises:
        ValueError: not an ICD-9-CM code.

    >>> icd9_group("428.0"), icd9_group("250.83"), icd9_group("V45"), icd9_group("E812")
    ('circulatory', 'diabetes mellitus', 'supplementary factors', 'external causes')
    """
    prefix, digits = (code[:1], code[1:]) if code[:1] in ("E", "V") else ("", code)
    whole, _, fraction = digits.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= 3 and (not fraction or fraction.isdigit())):
        raise ValueError(f"“{code}” is no ICD-9 code.")
    if prefix:
        return EXTERNAL_CAUSES if prefix == "E" else SUPPLEMENTARY
    if int(whole) < 1:
        raise ValueError(f"“{code}” is no ICD-9 code.")
    return DIABETES if int(whole) == 250 else _CHAPTERS[bisect_right(_STARTS, int(whole)) - 1][1]
