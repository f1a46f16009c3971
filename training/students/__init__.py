"""Students: models that learn from releases about public points, which costs nothing however often it is done.

Knows what releases are, and nothing of accounts or of private records. Imports no Django.
"""

from training.students.base import Student
from training.students.checkpoints import UNKEPT, Checkpoint
from training.students.choice import choose
from training.students.neighbourhoods import neighbourhoods
from training.students.refining import refined
from training.students.registry import STUDENTS, student_class, student_create, student_learn, student_suggested
from training.students.releases import Releases, counted, joined, labelled, predicted

__all__ = [
    "STUDENTS",
    "UNKEPT",
    "Checkpoint",
    "Releases",
    "Student",
    "choose",
    "counted",
    "joined",
    "labelled",
    "neighbourhoods",
    "predicted",
    "refined",
    "student_class",
    "student_create",
    "student_learn",
    "student_suggested",
]
