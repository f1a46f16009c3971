"""Codes of public classifications, grouped into their chapters.

Groups are defined by regular expressions, because the format of published models supports no other operation on parts
of a string. Codes in a file and codes passed to a model are therefore grouped in the same way.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from common.sentences import gettext_noop as _


@dataclass(frozen=True)
class CodeSystem:
    """Classification, such as ICD-10.

    Attributes:
        label: Meaning of the codes.
        source: Publisher, and the list that defines the groups.
        code: Regular expression that matches every string with the format of a code.
        groups: Names and regular expressions; no code matches more than one.
        examples: Correctly spelled codes.
        has_others: Whether there is another group, “other”, for codes that match no group.
    """

    name: str
    label: str
    source: str
    code: str
    groups: tuple[tuple[str, str], ...]
    examples: str
    has_others: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups, in order."""
        return (*(name for name, _pattern in self.groups), *(("other",) if self.has_others else ()))

    def place(self, code: str) -> int | None:
        """Return the number of a code's group; None if the code is misspelled or belongs to no group.

        >>> system = CODE_SYSTEMS["icd9"]
        >>> [system.names[system.place(code)] for code in ("428.0", "250.83", "V45", "E812")]
        ['circulatory', 'diabetes mellitus', 'supplementary factors', 'external causes']
        """
        if not self._code.fullmatch(code):
            return None
        places = (place for place, group in enumerate(self._patterns) if group.fullmatch(code))
        return next(places, len(self.groups) if self.has_others else None)

    @cached_property
    def _code(self) -> re.Pattern[str]:
        return re.compile(self.code)

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [re.compile(pattern) for _name, pattern in self.groups]


def _beginning(*groups: tuple[str, str], rest: str) -> tuple[tuple[str, str], ...]:
    """Return groups defined by the first characters of their codes."""
    return tuple((name, f"(?:{begin}){rest}") for name, begin in groups)


_ICD9 = _beginning(
    ("infectious and parasitic", "0?0?[1-9]|0?[1-9][0-9]|1[0-3][0-9]"),
    ("neoplasms", "1[4-9][0-9]|2[0-3][0-9]"),
    ("endocrine, nutritional, metabolic, immunity", "24[0-9]|25[1-9]|2[67][0-9]"),
    ("blood", "28[0-9]"),
    ("mental", "29[0-9]|3[01][0-9]"),
    ("nervous system and sense organs", "3[2-8][0-9]"),
    ("circulatory", "39[0-9]|4[0-5][0-9]"),
    ("respiratory", "4[6-9][0-9]|5[01][0-9]"),
    ("digestive", "5[2-7][0-9]"),
    ("genitourinary", "5[89][0-9]|6[0-2][0-9]"),
    ("pregnancy and childbirth", "6[3-7][0-9]"),
    ("skin", "6[89][0-9]|70[0-9]"),
    ("musculoskeletal", "7[1-3][0-9]"),
    ("congenital", "7[45][0-9]"),
    ("perinatal", "7[67][0-9]"),
    ("symptoms and ill-defined", "7[89][0-9]"),
    ("injury and poisoning", "[89][0-9][0-9]"),
    ("diabetes mellitus", "250"),
    ("external causes", "E[0-9]{1,3}"),
    ("supplementary factors", "V[0-9]{1,3}"),
    rest=r"(?:\.[0-9]*)?",
)
_ICD10_REST = r"(?:\.?[0-9A-Z]{0,4}-?)?[+*!]?"
_ICD10 = _beginning(
    ("infectious and parasitic", "[AB][0-9]{2}"),
    ("neoplasms", "C[0-9][0-9AB]|D[0-4][0-9A]"),
    ("blood and immune mechanism", "D[5-8][0-9]"),
    ("endocrine, nutritional, metabolic", "E[0-9]{2}"),
    ("mental and behavioural", "F[0-9]{2}"),
    ("nervous system", "G[0-9]{2}"),
    ("eye", "H[0-5][0-9]"),
    ("ear", "H[6-9][0-9]"),
    ("circulatory", "I[0-9][0-9A]"),
    ("respiratory", "J[0-9][0-9A]"),
    ("digestive", "K[0-9]{2}"),
    ("skin", "L[0-9]{2}"),
    ("musculoskeletal", "M[0-9][0-9A]"),
    ("genitourinary", "N[0-9]{2}"),
    ("pregnancy and childbirth", "O[0-9][0-9A]"),
    ("perinatal", "P[0-9]{2}"),
    ("congenital", "Q[0-9]{2}"),
    ("symptoms and findings", "R[0-9]{2}"),
    ("injury and poisoning", "[ST][0-9]{2}"),
    ("external causes", "[VWXY][0-9]{2}"),
    ("factors influencing health", "Z[0-9][0-9A]"),
    ("special purposes", "U[0-9]{2}"),
    rest=_ICD10_REST,
)
_ATC_REST = "(?:[0-9]{2}(?:[A-Z](?:[A-Z](?:[0-9]{2})?)?)?)?"
_ATC = _beginning(
    ("alimentary tract and metabolism", "A"),
    ("blood and blood forming organs", "B"),
    ("cardiovascular system", "C"),
    ("dermatologicals", "D"),
    ("genito-urinary system and sex hormones", "G"),
    ("systemic hormones", "H"),
    ("antiinfectives for systemic use", "J"),
    ("antineoplastic and immunomodulating agents", "L"),
    ("musculo-skeletal system", "M"),
    ("nervous system", "N"),
    ("antiparasitic products", "P"),
    ("respiratory system", "R"),
    ("sensory organs", "S"),
    ("various", "V"),
    rest=_ATC_REST,
)
_LOINC = (
    (
        "vital signs",
        "85353-1|9279-1|8867-4|2708-6|59408-5|8310-5|8302-2|9843-4|29463-7|39156-5|85354-9|8480-6|8462-4|8478-0",
    ),
    (
        "chemistry",
        "2345-7|2339-0|2951-2|2823-3|2075-0|2028-9|3094-0|2160-0|17861-6|2885-2|1751-7|1975-2|1968-7|6768-6|1742-6|"
        "1920-8|2324-2|2532-0|2093-3|2085-9|2089-1|13457-7|2571-8|3084-1|1988-5|30522-7|3016-3|3024-7|2276-4|2498-4|"
        "2132-9|2284-8|1989-3|2601-3|2777-1|2157-6|6598-7|10839-9|33762-6|30934-4|1798-8|3040-3|2524-7|33914-3|"
        "2857-1|33959-8|2744-1|2019-8|2703-7|1925-7|1960-4",
    ),
    (
        "haematology",
        "718-7|4544-3|20570-8|6690-2|26464-8|789-8|777-3|26515-7|787-2|785-6|786-4|788-0|32623-1|770-8|736-9|5905-5|"
        "713-8|706-2|751-8|731-0|742-7|711-2|704-7|4537-7|4548-4|17856-6",
    ),
    ("coagulation", "5902-2|6301-6|3173-2|14979-9|3255-7|48065-7"),
    ("urinalysis", "5811-5|5803-2|5804-0|5792-7|5794-3|5799-2|5802-4|5770-3|5797-6|20405-7|5767-9|5778-6"),
)
CODE_SYSTEMS = {
    "icd9": CodeSystem(
        "ICD-9",
        _("ICD-9 diagnosis"),
        "CDC/NCHS, ICD-9-CM tabular list: its seventeen chapters and two supplementary classifications (E and V "
        "codes); diabetes (250) stands on its own.",
        r"[EV]?[0-9]{1,3}(\.[0-9]*)?",
        _ICD9,
        "250.83, V45, E812",
    ),
    "icd10": CodeSystem(
        "ICD-10",
        _("ICD-10 diagnosis"),
        "WHO, ICD-10 (version 2019), list of chapters; sense organs and their neighbours as ICD-10-CM and ICD-10-GM "
        "divide them.",
        f"[A-Z][0-9][0-9AB]{_ICD10_REST}",
        _ICD10,
        "I50.1, E11.90, S72.001A",
    ),
    "atc": CodeSystem(
        "ATC",
        _("ATC code of a drug"),
        "WHO Collaborating Centre for Drug Statistics Methodology, ATC index: the fourteen anatomical main groups.",
        f"[A-Z]{_ATC_REST}",
        _ATC,
        "A10BA02, C07",
    ),
    "loinc": CodeSystem(
        "LOINC",
        _("LOINC code of a measurement"),
        "Regenstrief Institute, LOINC core table: each code is in it, with a component of its group. Vital signs: HL7 "
        "FHIR, value set observation-vitalsignresult (R4B, R5), and pulse oximetry (59408-5). The tests are frequent "
        "ones. LOINC codes have no chapters of their own, so that all others count as “other”.",
        "[0-9]{1,7}-[0-9]",
        _LOINC,
        "2345-7, 718-7",
        has_others=True,
    ),
}
"""Code systems by the name used in a schema as the type of a column."""
