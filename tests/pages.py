"""Pages as a person sees them: signed in, by the name of a page, and as text."""

import re
from typing import Any

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from consent.models import Role, Study
from consent.services import membership_add
from ipate_web.staff.forms.runs import RunForm, initial_for
from tests import factories
from training.models import Run


def as_(person: str | User) -> Client:
    """Browser of somebody who is signed in, with an account of this name if there was none."""
    client = Client()
    client.force_login(factories.user_create(person) if isinstance(person, str) else person)
    return client


def url(page: str, of: Study | Run, *args: object) -> str:
    """Address of a page of the staff about a study or a run."""
    about = [of.study.slug, of.pk] if isinstance(of, Run) else [of.slug]
    return reverse(f"staff:{page}", args=[*about, *args])


def text(response: Any) -> str:
    """Text that a reader sees, in one line."""
    apart = re.sub(r"<br>|</(?:d[dt]|div|h\d|li|p|t[dh])>", " ", response.content.decode())
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", apart))


def roles_fill(study: Study) -> Study:
    """The same study with a member of each role, named like it."""
    for role in Role.values:
        membership_add(study=study, user=factories.user_create(role), role=role, acting_user=None)
    return study


def run_form_filled(study: Study, **changes: Any) -> dict[str, Any]:
    """Data that a browser sends for the form of a run as it was opened, with ``changes``; what is None is not sent."""
    form = RunForm(study=study, acting_user=factories.user_create("operator"), initial=initial_for(study))
    values = {field.html_name: field.value() for field in form}
    sent = {
        name: getattr(value, "pk", value) for name, value in values.items() if value is not None and value is not False
    }
    return {name: value for name, value in {**sent, **changes}.items() if value is not None}
