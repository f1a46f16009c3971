"""Signed statements: which files a version of a model is, and its card, for whoever gets them from somebody else."""

from typing import Any

from django.conf import settings

from common.signing import signed
from training.models import StudentModel
from training.services.exports import file_native, file_onnx


def model_statement(version: StudentModel) -> str:
    """A signature over a version's card and the digests of its files; the same whenever it is asked for."""
    content: dict[str, Any] = {
        "iss": settings.SITE_URL,
        "iat": int(version.created_at.timestamp()),
        "study": version.run.study.slug,
        "model": str(version.run_id),
        "version": version.version,
        "files": [
            {"format": file.format, "sha256": file.digest} for file in (file_onnx(version), file_native(version))
        ],
        "card": version.card,
    }
    return signed(content)
