"""Requests that people send to the site, and whether the responses match the database."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx

#: Any secret of the right form works, because Django compares the cookie with the form.
_CSRF = "a" * 32


@dataclass(frozen=True)
class Deed:
    """An action that a person asks the site to carry out once.

    Attributes:
        name: Name of the action.
        method: GET or POST.
        path: Path of the page.
        fields: Fields of the form.
        cookies: Session of the person.
        accepted: Status that confirms the action.
        done: How often it was done, according to the database.
    """

    name: str
    method: str
    path: str
    fields: dict[str, str]
    cookies: dict[str, str]
    accepted: int
    done: Callable[[], int]

    def ask(self, address: str) -> int | None:
        """Return the status of the response, or None if there was none."""
        form = {"data": self.fields | {"csrfmiddlewaretoken": _CSRF}} if self.method == "POST" else {}
        try:
            with httpx.Client(cookies=self.cookies | {"csrftoken": _CSRF}, timeout=60) as client:
                return client.request(self.method, address + self.path, **form).status_code
        except httpx.HTTPError:
            return None


def session(user: Any) -> dict[str, str]:
    """Return the session of a person who is signed in."""
    from django.conf import settings
    from django.test import Client

    client = Client()
    client.force_login(user)
    return {settings.SESSION_COOKIE_NAME: client.cookies[settings.SESSION_COOKIE_NAME].value}


class People:
    """Holders of a study who decide, and an operator who approves, counts and downloads.

    Args:
        study: Study whose holders have consented.
        deciding: Number of holders who decide in the browser.
    """

    def __init__(self, study: Any, deciding: int = 8) -> None:
        from consent import services
        from consent.models import DataHolder
        from tests.factories import user_create

        self.study = study
        self.holders = list(DataHolder.objects.filter(study=study).order_by("pk")[:deciding])
        self.sessions = {}
        for holder in self.holders:
            user = user_create(f"{study.slug}-{holder.pk}")
            services.holder_link(holder=holder, user=user)
            self.sessions[holder.pk] = session(user)
        self.operator = session(user_create("olga"))

    def deed(self, random: random.Random, run_propose: Callable[[], Any], share: float) -> Deed:
        """Return an action to carry out now."""
        kinds = ["decide", "decide", "withdraw", "approve", "approve", "download", "head counts"]
        kind = random.choice(kinds)
        if kind == "approve":
            return self._approval(run_propose(), share)
        if kind == "download" and (finished := self._downloadable()):
            return self._download(finished)
        if kind == "head counts":
            return self._head_counts()
        return self._decision(random, wants_out=kind == "withdraw")

    def _decision(self, random: random.Random, wants_out: bool) -> Deed:
        from consent.models import ConsentEvent
        from consent.selectors import consent_current, consent_form_in_force, policy_in_force

        holder = random.choice(self.holders)
        current = consent_current(holder)
        root = f"/my/{self.study.slug}/"
        count = ConsentEvent.objects.filter(holder=holder).count
        if wants_out and current is not None and current.grants:
            return Deed("withdrawal", "POST", f"{root}withdraw/", {}, self.sessions[holder.pk], 302, count)
        others = {"HIGH", "AVERAGE", "LOW"} - {current.level if current is not None else ""}
        form, policy = consent_form_in_force(self.study), policy_in_force(self.study)
        assert form is not None and policy is not None, "the study asks people"
        fields = {
            "form_version": str(form.version),
            "policy_version": str(policy.version),
            "choice": random.choice(sorted(others)),
        }
        return Deed("consent", "POST", f"{root}decide/", fields, self.sessions[holder.pk], 302, count)

    def _approval(self, run: Any, share: float) -> Deed:
        from accounting.models import ShareRecord

        path = f"/studies/{self.study.slug}/runs/{run.pk}/approve/"
        fields = {"per_cent": str(100 * share), "revision": str(run.revision)}
        granted = ShareRecord.objects.filter(subject=run.pk, kind="granted").count
        return Deed("approval", "POST", path, fields, self.operator, 302, granted)

    def _downloadable(self) -> Any | None:
        from training.models import Run

        return Run.objects.filter(study=self.study, status=Run.Status.FINISHED).order_by("?").first()

    def _download(self, run: Any) -> Deed:
        from accounting.models import Release

        path = f"/studies/{self.study.slug}/runs/{run.pk}/students/1/model/"
        taken = Release.objects.filter(run=run.pk, kind=Release.Kind.DOWNLOAD).count
        return Deed("download", "GET", path, {}, self.operator, 200, taken)

    def _head_counts(self) -> Deed:
        from accounting.models import Release

        drawn = Release.objects.filter(study=self.study, kind=Release.Kind.HEAD_COUNTS).count
        fields = {"draw": ""}
        return Deed(
            "head counts", "POST", f"/studies/{self.study.slug}/head-counts/", fields, self.operator, 302, drawn
        )
