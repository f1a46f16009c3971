"""The form in which another version of a run's student is asked for."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from ipate_web.staff.forms.kinds import (
    ParameterGroup,
    chosen_parameters,
    kind_add,
    parameter_groups,
    parameter_values,
    unused_parameters,
)
from training.models import Run
from training.services.trainings import recipe_check


class StudentForm(forms.Form):
    """A student with its parameters, which can learn from the public points of ``run``."""

    def __init__(self, *args: Any, run: Run, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.run = run
        kind_add(self, "student_learner", _("Student"))

    @property
    def student_groups(self) -> list[ParameterGroup]:
        return parameter_groups(self, "student_learner")

    def clean(self) -> dict[str, Any]:
        for name in unused_parameters(self, "student_learner"):
            self.errors.pop(name, None)
        if not self.errors:
            try:
                recipe_check(self.run, **self.recipe())
            except ValidationError as error:
                self.add_error("student_learner", [text for texts in error.message_dict.values() for text in texts])
        return self.cleaned_data

    def recipe(self) -> dict[str, Any]:
        """Choices of the form, as ``student_ask`` takes them."""
        return {
            "student_learner": self.cleaned_data["student_learner"],
            "student_parameters": chosen_parameters(self, "student_learner"),
        }


def initial_student(run: Run) -> dict[str, Any]:
    """The student that the run asked for."""
    return parameter_values("student_learner", run.student_learner, run.student_parameters)
