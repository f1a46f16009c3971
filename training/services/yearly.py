"""Yearly news of what was learned."""

from datetime import datetime

from dateutil.relativedelta import relativedelta
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from accounting.models import Release
from consent.models import ConsentEvent, News, Study
from consent.services import study_lock
from consent.services.mail import news_tell


def years_tell() -> int:
    """Tell the people of each open study what was learned, where a year is over in which something was released.

    Years are counted from the first decision, then from the last such news: nobody is told twice in a year. A year in
    which nothing was asked of anybody and nothing published is passed over.

    Returns:
        The number of studies whose people are told.
    """
    open_ones = Study.objects.filter(rehearsal=False, closed_at=None).order_by("pk")
    return sum(_year_tell(study) for study in open_ones)


@transaction.atomic
def _year_tell(study: Study) -> bool:
    now, since = timezone.now(), _last_news(study)
    if since is None or since + relativedelta(years=1) > now:
        return False
    study_lock(study.pk)
    if _last_news(study) != since:  # another worker was first
        return False
    until = since + relativedelta(years=relativedelta(now, since).years)
    counts = Q(batch__isnull=False) | Q(kind=Release.Kind.MODEL)
    used = Release.objects.filter(counts, study=study, recorded_at__gt=since, recorded_at__lte=until)
    return used.exists() and news_tell(study=study, kind=News.Kind.YEAR) is not None


def _last_news(study: Study) -> datetime | None:
    """When the people of a study were last told of a year, or the first of them decided; None where nobody has."""
    moment = News.objects.filter(study=study, kind=News.Kind.YEAR).values_list("published_at", flat=True).first()
    return moment or ConsentEvent.chain(study.pk).values_list("recorded_at", flat=True).first()
