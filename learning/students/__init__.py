"""Students: models that learn from releases about public points, which costs nothing however often it is done.

Knows what releases are, and nothing of accounts or of private records. Imports no Django.
"""

from learning.students.categories import CategoriesModel, said
from learning.students.checkpoints import Checkpoint
from learning.students.choice import choose
from learning.students.neighbourhoods import neighbourhoods
from learning.students.refining import refine
from learning.students.registry import STUDENTS, student_class, student_create, student_learn, suggested_student
from learning.students.releases import Releases, counted, joined, labelled, predicted, with_labelled_rows
from learning.students.smoothing import smooth

__all__ = [
    "STUDENTS",
    "CategoriesModel",
    "Checkpoint",
    "Releases",
    "choose",
    "counted",
    "joined",
    "labelled",
    "neighbourhoods",
    "predicted",
    "refine",
    "said",
    "smooth",
    "student_class",
    "student_create",
    "student_learn",
    "suggested_student",
    "with_labelled_rows",
]
