"""Sites that send their requests to the application in the same process."""

import pytest
from django.conf import LazySettings

from tests.training.sites.alliances import InThisProcess
from training.alliances import wire
from training.alliances.wire import Hub


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch, settings: LazySettings) -> None:
    monkeypatch.setattr(Hub, "transport", InThisProcess())
    settings.SITES_WAIT = 0
    wire._pauses.clear()
