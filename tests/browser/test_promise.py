"""A promise whose level is weaker by now: before and now side by side, kept or given up in so many words."""

import pytest
from django.urls import reverse

from consent.selectors import consent_current, consent_form_in_force
from tests import factories
from tests.browser.test_text_size import CLIPPED, enlarge

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def holder():
    """Hanna was promised 56 at high protection, which means 60 by now; the form has to be answered anew."""
    study = factories.study_open(title="Reading digits")
    holder = factories.holder_create(study, user=factories.user_create("hanna"))
    factories.consent_choose(holder=holder, level="HIGH", form=consent_form_in_force(study), acting_user=holder.user)
    factories.policy_approve(study, 2, 4, 8)
    factories.form_publish(study, {"en": "More.", "de": "Mehr."}, renewal="required")
    return holder


@pytest.mark.parametrize(("size", "answer"), [("desktop", "keep"), ("phone", "weaker")])
def test_a_promise_is_kept_or_given_up_in_so_many_words(visit, holder, size: str, answer: str) -> None:
    site, slug = visit(size), holder.study.slug
    site.sign_in("hanna")
    for page in ("choice", "study"):
        site.open(reverse(f"consent:{page}", args=[slug]))
        table = site.page.get_by_role("table").first
        assert "at most 56 in 100" in table.inner_text() and "at most 60 in 100" in table.inner_text()
        site.fits()
    label = "I keep what I was promised: high protection" if answer == "keep" else "High protection"
    site.page.get_by_label(label, exact=False).and_(site.page.get_by_role("radio")).last.check()
    site.press("Continue")
    site.fits()
    if answer == "weaker":
        box = site.page.get_by_label("Yes, I accept weaker protection", exact=False)
        assert not box.is_checked()
        site.says("Yes, I accept weaker protection")
        site.press("Yes, this is my decision")
        assert consent_current(holder).form.version == 1, "nothing is recorded without the box"
        box.check()
    else:
        assert site.page.get_by_label("Yes, I accept weaker protection", exact=False).count() == 0
    site.press("Yes, this is my decision")
    site.says("You take part: high protection.")
    event = consent_current(holder)
    assert (event.policy.version, event.epsilon_before) == ((1, None) if answer == "keep" else (2, 1))
    site.press("Receipt")
    site.says("Before this decision")
    site.fits()


@pytest.mark.parametrize("language", ["en", "de"])
def test_before_and_now_is_read_on_a_phone_without_scrolling_sideways(visit, holder, language: str) -> None:
    site = visit("phone", language="en")
    site.sign_in("hanna")
    site.page.context.add_cookies([{"name": "django_language", "value": language, "url": site.address}])
    beyond = "(box => box.scrollWidth - box.clientWidth)(document.querySelector('.beside'))"
    for page in ("choice", "study"):
        site.open(reverse(f"consent:{page}", args=[holder.study.slug]))
        for percent in (100, 200):
            enlarge(site, percent)
            assert site.page.evaluate(CLIPPED) == []
            assert site.page.evaluate(beyond) == 0
            site.fits()
