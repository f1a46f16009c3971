"""Pages as people see them: signed in, by the name of a page, and as text."""

import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from accounting.models import Release
from consent.models import Role, Study
from ipate_web.staff.proposals import RunForm, initial_for
from ipate_web.staff.runs import TABS
from tests import factories
from tests.snapshots import built_once
from tests.training.runs import TABLE_RUN, run_finish, run_start, study_with_table
from training.models import Run


def as_(person: str | User) -> Client:
    """Return the browser of a signed-in person, whose account is created if necessary."""
    client = Client()
    client.force_login(factories.user_create(person) if isinstance(person, str) else person)
    return client


def url(page: str, of: Study | Run, *args: object) -> str:
    """Return the address of a staff page about a study or a run."""
    about = [of.study.slug, of.pk] if isinstance(of, Run) else [of.slug]
    return reverse(f"staff:{page}", args=[*about, *args])


def run_text(client: Client, run: Run) -> str:
    """Return the HTML of all tabs of a run's page."""
    pages = [client.get(url("run", run)), *(client.get(url("run_tab", run, tab)) for tab in TABS[1:])]
    return "\n".join(page.text for page in pages if page.status_code == 200)


def text(response: Any) -> str:
    """Return the text that a reader sees, in one line."""
    html = response if isinstance(response, str) else response.content.decode()
    apart = re.sub(r"<br>|</(?:d[dt]|div|h\d|li|p|t[dh])>", " ", html)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", apart))


def downloads(run: Run) -> list[tuple[str, str]]:
    """Return downloads from a run and who made them, from the release register."""
    entries = Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD).order_by("sequence")
    return [(entry.content["what"], str(entry.recorded_by)) for entry in entries]


def person_confirm(client: Client, address: str, sent: dict[str, Any], **more: Any) -> Any:
    """Send a form about a person, and confirm that it is the person whom the page shows."""
    shown = client.post(address, sent)
    person = re.search(r'name="person" value="([^"]+)"', shown.text)
    if person is None:
        return shown
    for value in sent.values():
        if hasattr(value, "seek"):
            value.seek(0)
    return client.post(address, {**sent, "person": person[1]}, **more)


def roles_fill(study: Study) -> Study:
    """Return the same study with a member for each role, who is named after it."""
    return factories.members_add(study, **{role: role for role in Role.values})


@built_once
def study_with_roles(**fields: Any) -> Study:
    """Return a small study with a member for each role, who is named after it."""
    return roles_fill(study_with_table(**fields))


@built_once
def study_with_finished_run(**fields: Any) -> Study:
    """Return the study of :func:`study_with_roles` with a finished run."""
    study = study_with_roles()
    run_finish(run_start(study, **TABLE_RUN | fields))
    return study


def run_form_filled(study: Study, **changes: Any) -> dict[str, Any]:
    """Return a browser's data for the newly opened form of a run, with ``changes``; None leaves a field out."""
    form = RunForm(study=study, acting_user=factories.user_create("operator"), initial=initial_for(study))
    values = {field.html_name: field.value() for field in form}
    shown = {name: getattr(value, "pk", value) for name, value in values.items() if value is not False}
    return {name: value for name, value in {**shown, **changes}.items() if value is not None}
