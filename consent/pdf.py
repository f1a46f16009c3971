"""Tagged PDF documents (PDF/UA-1), with the structure, language and title that screen readers need."""

import json
from pathlib import Path
from typing import Any

FONTS = Path(__file__).with_name("fonts")


def tagged_pdf(template: Path, context: dict[str, Any]) -> bytes:
    """Return a PDF made from a Typst template, which reads ``context`` as data, never as markup.

    If our fonts lack a letter, fall back to the system's fonts and do not claim the standard.
    """
    import typst  # slow to import, and most processes make no documents

    inputs = {"data": json.dumps(context)}
    try:
        return _compiled(template, inputs, ignore_system_fonts=True, pdf_standards="ua-1")
    except typst.TypstError:
        return _compiled(template, inputs, ignore_system_fonts=False)


def _compiled(template: Path, inputs: dict[str, str], **options: Any) -> bytes:
    import typst

    document: bytes = typst.compile(  # type: ignore[assignment]  # a file is only written where one is named
        str(template), root=str(template.parent), format="pdf", font_paths=[FONTS], sys_inputs=inputs, **options
    )
    return document
