"""Train another version of the student of a finished run, from the run's releases.

This neither asks nor charges anyone, and does not publish the new version.
"""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError

from common.progress import progress_bar
from learning.students import STUDENTS
from training.models import Run
from training.services.students import student_ask, student_learn


class Command(BaseCommand):
    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("run", help="id of the run, as in the URL of its page")
        parser.add_argument("--student", choices=sorted(STUDENTS), help="default: the run's own student")
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="a parameter of the student, such as steps=300; others keep their defaults",
        )

    def handle(self, *args: Any, run: str, student: str | None, set: list[str], **options: Any) -> None:
        row = _run(run)
        learner = student or row.student_learner
        parameters = dict(map(_parameter, set))
        if student is None:
            parameters = {**row.student_parameters, **parameters}
        try:
            training = student_ask(
                run=row, student_learner=learner, student_parameters=parameters, acting_user=None, by_worker=False
            )
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        with progress_bar(desc=learner) as bar:

            def progress(done: int, total: int) -> None:
                bar.total = total
                bar.update(done - bar.n)

            student_learn(training.pk, progress)
        training.refresh_from_db()
        if training.message or training.state != training.State.DONE:
            raise CommandError(training.message or "The student could not be trained; see the log above.")
        version = row.students.latest("version")
        right = "" if version.accuracy is None else f", {100 * version.accuracy:.1f} % right on the test data"
        self.stdout.write(f"Version {version.version} of the student: {version.learner}, {version.seconds:g} s{right}.")


def _run(text: str) -> Run:
    try:
        return Run.objects.get(pk=text)
    except (Run.DoesNotExist, ValidationError):
        raise CommandError(f"There is no run {text}. A run's id is part of the URL of its page.") from None


def _parameter(text: str) -> tuple[str, Any]:
    name, _equals, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        raise CommandError(f"--set {text}: give NAME=VALUE, where the value is a number, true or false.") from None
