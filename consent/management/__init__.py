"""Command-line arguments that identify rows of the database."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from consent.models import Study


def study_argument(parser: ArgumentParser) -> None:
    """Add a study's short name as the command's first argument; `study_by_slug` looks it up."""
    parser.add_argument("study", help="short name of the study")


def study_by_slug(slug: str) -> Study:
    """Return the study with this short name. Raises CommandError."""
    study = Study.objects.filter(slug=slug).first()
    if study is None:
        known = ", ".join(Study.objects.order_by("slug").values_list("slug", flat=True)) or "none yet"
        raise CommandError(f"There is no study “{slug}”. Studies: {known}.")
    return study
