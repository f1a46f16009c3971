"""The suggestion for a study, from its newest public points."""

from consent.models import Study
from learning.mechanisms.suggestions import Suggestion, suggested_method
from training.models import Dataset


def suggestion_for(study: Study) -> Suggestion:
    """Suggestion that a proposal of the study begins with, a function of what is public; for tables without data."""
    public = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).order_by("-imported_at").first()
    if public is None:
        return suggested_method("table", 0)
    return suggested_method(public.schema["kind"], public.rows)
