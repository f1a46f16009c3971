"""A text is read aloud by the browser, in the text's language; without JavaScript there is no such button."""

import pytest
from django.urls import reverse

from tests import factories

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: A voice that keeps what it is given in place of sounding.
VOICE = """
window.said = [];
Object.defineProperty(window, "speechSynthesis", {
  value: {
    speak: (speech) => window.said.push([speech.lang, speech.text]),
    cancel: () => window.said.push(["stop", ""]),
  },
});
"""


def test_the_text_is_read_aloud_in_its_language(visit) -> None:
    study = factories.study_open()
    factories.holder_create(study, user=factories.user_create("hanna"))
    path = reverse("consent:study", args=[study.slug])
    site = visit(size="phone")
    site.page.add_init_script(VOICE)
    site.sign_in("hanna")
    site.open(f"{path}?text=de")
    button = site.page.get_by_role("button", name="Read aloud")
    button.click()
    site.page.get_by_role("button", name="Stop reading").wait_for()
    said = site.page.evaluate("window.said")
    assert said[1] == ["de", "Worum wir bitten"]
    assert said[2][0] == "de" and said[2][1].startswith("Wir möchten aus Ihren Daten lernen")
    site.page.get_by_role("button", name="Stop reading").click()
    assert site.page.evaluate("window.said").pop() == ["stop", ""]
    site.is_in_order()


def test_without_javascript_there_is_no_button(visit) -> None:
    study = factories.study_open()
    factories.holder_create(study, user=factories.user_create("hanna"))
    site = visit(javascript=False)
    site.sign_in("hanna")
    site.open(reverse("consent:study", args=[study.slug]))
    site.says("What you should know")
    assert not site.page.get_by_text("Read aloud").is_visible()
