"""Rényi curves as the database keeps them."""

import json
from typing import Any

import numpy as np
from django.core.exceptions import ValidationError
from django.db import models

#: IEEE 754 doubles in the byte order of PostgreSQL's own ``float8send``, so that SQL can read them, too.
STORED = np.dtype(">f8")


class CurveField(models.Field):
    """A list of floats, one for each Rényi order: exactly those, on every database, and without parsing any text."""

    description = "curve over the Rényi orders"

    def get_internal_type(self) -> str:
        return "BinaryField"

    def to_python(self, value: Any) -> list[float] | None:
        try:
            if isinstance(value, str):
                value = json.loads(value)
            return None if value is None else [float(number) for number in value]
        except (TypeError, ValueError) as error:
            raise ValidationError("A curve is a list of numbers.") from error

    def from_db_value(self, value: Any, expression: object, connection: object) -> list[float] | None:
        return None if value is None else np.frombuffer(value, dtype=STORED).tolist()

    def get_db_prep_value(self, value: Any, connection: object, prepared: bool = False) -> Any:
        return None if value is None else np.asarray(value, dtype=STORED).tobytes()

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))
