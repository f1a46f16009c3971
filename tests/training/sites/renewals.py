"""An alliance of which a site has lost its key: installations with secret keys of their own, in one process."""

from typing import Any

import httpx
import pytest
from django.conf import settings

from consent.models import Role
from consent.services import membership_add
from tests.factories import user_create
from tests.training.sites.alliances import ADDRESS, Installations, InThisProcess, olga
from training.alliances import renewals, wire
from training.alliances.exchange import exchange
from training.alliances.wire import Hub, invitation_write
from training.models import Alliance


class Secrets:
    """Secret keys of the installation that acts: `training.alliances.wire` finds them where it looks for settings."""

    OWN = "of everybody " * 4

    def __init__(self) -> None:
        self.SECRET_KEY, self.SECRET_KEY_FALLBACKS = self.OWN, list[str]()

    def __getattr__(self, name: str) -> Any:
        """Return what all installations share."""
        return getattr(settings, name)


class AtHub(InThisProcess):
    """Requests reach a hub that has a secret key of its own, whatever the site has that asks."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        site = vars(self._secrets).copy()
        vars(self._secrets).update(SECRET_KEY=Secrets.OWN, SECRET_KEY_FALLBACKS=[])
        try:
            return super().handle_request(request)
        finally:
            vars(self._secrets).update(site)


class Renewed:
    """Three sites, of which the first has lost its key: its installation has another secret key."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets, self.there, self.keeps = secrets, Installations(3), False
        for study in (self.there.hub_study, *self.there.studies):
            membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
        self.first, self.lost = self.there.sites[0], False

    def as_first(self, key: str = "another") -> None:
        """What follows is done at the first site, which has another secret key than the others."""
        self.secrets.SECRET_KEY, self.secrets.SECRET_KEY_FALLBACKS = key, [Secrets.OWN] if self.keeps else []

    def as_others(self) -> None:
        self.secrets.SECRET_KEY, self.secrets.SECRET_KEY_FALLBACKS = Secrets.OWN, []

    def contact(self, place: int) -> Alliance:
        """What a site and its hub tell each other, as the alliance is at the site then."""
        (self.as_first if place == 0 and self.lost else self.as_others)()
        site = Alliance.objects.select_related("study").get(pk=self.there.sites[place].pk)
        try:
            exchange(site)
        finally:
            self.as_others()
        return Alliance.objects.select_related("study").get(pk=site.pk)

    @property
    def hub(self) -> Alliance:
        return Alliance.objects.select_related("study").get(pk=self.there.hub.pk)

    def lose(self) -> None:
        self.lost = True

    def register(self) -> str:
        """The hub asks for another key, and the site registers it; its fingerprint."""
        code = renewals.renewal_propose(alliance=self.hub, site="Clinic A", acting_user=user_create("otto"))
        self.as_first()
        fingerprint = renewals.identity_renew(
            alliance=self.first, invitation=invitation_write(self.hub, code, ADDRESS), acting_user=olga()
        )
        self.as_others()
        return fingerprint

    def confirm(self, place: int | None, fingerprint: str, by: str = "olga") -> Alliance:
        """Confirm at the hub (None), or at a site after it has heard of it."""
        alliance = self.hub if place is None else self.contact(place)
        (self.as_first if place == 0 else self.as_others)()
        done = renewals.renewal_confirm(alliance=alliance, new_fingerprint=fingerprint, acting_user=user_create(by))
        self.as_others()
        return done

    def everywhere(self) -> str:
        self.lose()
        fingerprint = self.register()
        for place in (None, *range(len(self.there.sites))):
            self.confirm(place, fingerprint)
        for place in range(len(self.there.sites)):
            self.contact(place)
        self.there.hub = self.hub
        self.there.sites = list(map(self.contact, range(len(self.there.sites))))
        return fingerprint


def renewed_make(monkeypatch: pytest.MonkeyPatch) -> Renewed:
    """The alliance; keys, and requests to the hub, are those of each installation until the test is over."""
    secrets = Secrets()
    monkeypatch.setattr(wire, "settings", secrets)
    monkeypatch.setattr(Hub, "transport", AtHub(secrets))
    return Renewed(secrets)
