"""Documents as tagged PDF (PDF/UA-1): structure, language and title for whoever reads them aloud."""

import json
from pathlib import Path
from typing import Any

import typst

FONTS = Path(__file__).with_name("fonts")


def tagged_pdf(template: Path, context: dict[str, Any]) -> bytes:
    """A document by a Typst template, which finds all that it says in ``sys.inputs.data``: data, never markup.

    Where the font has no letter for something, other fonts are tried and the standard is not claimed.
    """
    inputs = {"data": json.dumps(context)}
    try:
        return _compiled(template, inputs, ignore_system_fonts=True, pdf_standards="ua-1")
    except typst.TypstError:
        return _compiled(template, inputs, ignore_system_fonts=False)


def _compiled(template: Path, inputs: dict[str, str], **options: Any) -> bytes:
    document: bytes = typst.compile(  # type: ignore[assignment]  # a file is only written where one is named
        str(template), root=str(template.parent), format="pdf", font_paths=[FONTS], sys_inputs=inputs, **options
    )
    return document
