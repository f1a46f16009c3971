"""A study with many runs and, optionally, many holders, for measuring pages. One run is real; the rest are its copies.

web_speed.py and web_load.py import it after setting up Django, on an empty migrated database.
"""

from typing import Any
from uuid import uuid4

POINTS, BATCH = 300, 4
#: The most viewed pages, by name.
PAGES = ("study", "run", "run list", "tick")


def site_set_up() -> None:
    """Set Django up, create the tables, and collect the static files as in an installation."""
    import django

    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    call_command("collectstatic", verbosity=0, interactive=False)


def study_build(runs: int) -> tuple[dict[str, str], dict[str, str]]:
    """Build a study with ``runs`` runs, one of which is in progress.

    Returns:
        The URLs of :data:`PAGES` by name, and the session cookies of an operator and steward who may see them.
    """
    from django.conf import settings
    from django.test import Client

    from consent.models import Role
    from consent.services import membership_add
    from tests.factories import user_create
    from tests.training.asking import ASKING_RUN, run_ask
    from tests.training.runs import run_start, study_with_table

    study = study_with_table("speed", points=POINTS)
    fields = ASKING_RUN | {"batch_size": BATCH}
    finished = run_ask(run_start(study, share=0.3, title="The first", **fields))
    under_way = run_ask(run_start(study, share=0.3, title="Under way", **fields), POINTS // BATCH // 2)
    runs_copy(finished, runs - 2)
    olga = user_create("olga")
    membership_add(study=study, user=olga, role=Role.STEWARD, acting_user=None)
    client = Client()
    client.force_login(olga)
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    root = f"/studies/{study.slug}/"
    addresses = {
        "study": root,
        "run": f"{root}runs/{finished.pk}/",
        "run list": f"{root}runs/",
        "tick": f"{root}runs/{under_way.pk}/live/",
    }
    return addresses, {settings.SESSION_COOKIE_NAME: key}


def runs_copy(run: Any, number: int) -> None:
    """Write ``number`` copies of a finished run, with its batches, releases, model and used share."""
    from copy import copy

    from accounting.models import Release, ShareRecord
    from training.models import Batch, Run, StudentModel

    copies, students, batches, releases, shares = [], [], [], [], []
    kept = list(Release.objects.filter(run=run.pk).order_by("sequence"))
    sources = list(run.batches.all())
    for place in range(number):
        twin = copy(run)
        twin.pk, twin.title, twin.student = uuid4(), f"Copy {place}", None
        student = copy(run.students.get())
        student.pk, student.run_id = None, twin.pk
        copies.append(twin)
        students.append(student)
        batches += [_row(Batch, each, run_id=twin.pk, round_id=None) for each in sources]
        releases += [_row(Release, each, run=twin.pk, charges="", charges_digest="") for each in kept]
        shares += [
            ShareRecord(study=run.study, subject=twin.pk, purpose="run", kind=kind, share=0.001, limit=limit)
            for kind, limit in (("granted", None), ("opened", 0.6), ("settled", None))
        ]
    Run.objects.bulk_create(copies)
    StudentModel.objects.bulk_create(students)
    for twin in copies:
        twin.student = twin.students.get()
    Run.objects.bulk_update(copies, ["student"])
    Batch.objects.bulk_create(batches)
    Release.append(releases)
    for record in shares:
        ShareRecord.append([record])


def _row(model: Any, given: Any, **changed: Any) -> Any:
    fields = [field.attname for field in model._meta.concrete_fields if not field.primary_key]
    left_out = {"sequence", "previous_hash", "hash"}
    return model(**{name: getattr(given, name) for name in fields if name not in left_out} | changed)
