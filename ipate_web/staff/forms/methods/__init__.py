"""Form fields of each method by which a run can learn."""

from ipate_web.staff.forms.methods.base import MethodFields
from ipate_web.staff.forms.methods.neighbours import NeighboursFields
from ipate_web.staff.forms.methods.pate import PateFields
from ipate_web.staff.forms.methods.sgd import SgdFields

METHOD_FIELDS: dict[str, type[MethodFields]] = {
    fields.name: fields for fields in (NeighboursFields, PateFields, SgdFields)
}

__all__ = ["METHOD_FIELDS", "MethodFields"]
