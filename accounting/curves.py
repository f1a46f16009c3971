"""Rényi curves as the database keeps them."""

import json
from typing import Any

import numpy as np
from django.core.exceptions import ValidationError
from django.db import models
from numpy.typing import ArrayLike

#: IEEE 754 doubles in the byte order of PostgreSQL's own ``float8send``, so that SQL can read them, too.
STORED = np.dtype(">f8")
#: Relative difference between sums of the same floats in another order.
ROUNDING = 1e-9


def curves_equal(one: ArrayLike, other: ArrayLike, *, rtol: float = ROUNDING) -> bool:
    """Are two curves of the same length equal but for a relative difference of ``rtol``?"""
    return np.shape(one) == np.shape(other) and np.allclose(one, other, rtol=rtol, atol=0)


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
        """The curve; an empty one for what was never written here: bytes that are no whole number of doubles, or text.

        A curve has a number for every order, so that an empty one has the hash of no row and fits no calculation: what
        was forged can still be read, and be named.
        """
        if value is None:
            return None
        whole = isinstance(value, bytes | memoryview) and len(value) % STORED.itemsize == 0
        return np.frombuffer(value, dtype=STORED).tolist() if whole else []

    def get_db_prep_value(self, value: Any, connection: object, prepared: bool = False) -> Any:
        return None if value is None else np.asarray(value, dtype=STORED).tobytes()

    def value_to_string(self, obj: models.Model) -> str:
        return json.dumps(self.value_from_object(obj))
