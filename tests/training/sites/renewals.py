"""An alliance in which a site has lost its key: installations with different secret keys in one process."""

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
    """The secret keys of the current installation; `training.alliances.wire` reads them instead of the settings."""

    OWN = "of everybody " * 4

    def __init__(self) -> None:
        self.SECRET_KEY, self.SECRET_KEY_FALLBACKS = self.OWN, list[str]()

    def __getattr__(self, name: str) -> Any:
        """Return a setting that all installations share."""
        return getattr(settings, name)


class AtHub(InThisProcess):
    """Handle requests with the hub's secret key, even if the requesting site has another."""

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
    """Three sites, the first of which has lost its key, so that its installation has another secret key."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets, self.there, self.keeps = secrets, Installations(3), False
        for study in (self.there.hub_study, *self.there.studies):
            membership_add(study=study, user=user_create("otto"), role=Role.OPERATOR, acting_user=None)
        self.first, self.lost = self.there.sites[0], False

    def as_first(self, key: str = "another") -> None:
        """Act at the first site, whose secret key differs from the others'."""
        self.secrets.SECRET_KEY, self.secrets.SECRET_KEY_FALLBACKS = key, [Secrets.OWN] if self.keeps else []

    def as_others(self) -> None:
        self.secrets.SECRET_KEY, self.secrets.SECRET_KEY_FALLBACKS = Secrets.OWN, []

    def contact(self, place: int) -> Alliance:
        """Let a site and its hub exchange news, using the site's current alliance."""
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
        """Let the hub request another key and the site register it; return the key's fingerprint."""
        code = renewals.renewal_propose(alliance=self.hub, site="Clinic A", acting_user=user_create("otto"))
        self.as_first()
        invitation = invitation_write(self.hub, code, ADDRESS)
        fingerprint = renewals.identity_renew(alliance=self.first, invitation=invitation, acting_user=olga())
        self.as_others()
        return fingerprint

    def confirm(self, place: int | None, fingerprint: str, by: str = "olga") -> Alliance:
        """Confirm the key at the hub (None), or at a site after it has heard of the key."""
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
    """Return the alliance; until the test ends, keys and requests are those of each installation."""
    secrets = Secrets()
    monkeypatch.setattr(wire, "settings", secrets)
    monkeypatch.setattr(Hub, "transport", AtHub(secrets))
    return Renewed(secrets)
