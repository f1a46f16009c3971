"""Field for what people read: a sentence keeps its values, so that pages can say it in another language."""

import json
from typing import Any

from django.db import models

from common.sentences import Sentence

_MARK = '{"template": '


class SentenceField(models.TextField):
    """Text, or a :class:`~common.sentences.Sentence`, which is kept as JSON and comes back as one."""

    def deconstruct(self) -> Any:
        name, _path, args, given = super().deconstruct()
        return name, "django.db.models.TextField", args, given

    def get_prep_value(self, value: Any) -> Any:
        return json.dumps(value.to_json()) if isinstance(value, Sentence) else super().get_prep_value(value)

    def from_db_value(self, value: str | None, *_: object) -> str | None:
        return Sentence.from_json(json.loads(value)) if value and value.startswith(_MARK) else value
