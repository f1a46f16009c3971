"""The suggestion for a study, from its newest public points."""

from consent.models import Study
from learning.mechanisms.suggestions import Suggestion, method_suggested
from training.models import Dataset


def suggestion_for(study: Study) -> Suggestion:
    """Suggestion that a proposal of the study begins with, a function of what is public; for tables without data."""
    public = study.datasets.filter(kind=Dataset.Kind.PUBLIC, removed_at=None).order_by("-imported_at").first()
    if public is None:
        return method_suggested("table", 0)
    return method_suggested(public.schema["kind"], public.rows)
