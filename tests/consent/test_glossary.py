"""Words with pop-ups, folded sections, and tables whose columns matter more or less."""

import re

from django.template import Context, Template
from django.test import Client
from django.utils.html import escape

import ipate_web.staff.urls
from consent.glossary import WORDS, WORDS_OF_STAFF
from ipate_web.staff import help
from tests.everything import addresses


def rendered(source: str) -> str:
    return Template(source).render(Context())


def test_each_word_has_a_pop_up_of_its_own() -> None:
    page = rendered('{% words "noise cap" %}')
    assert re.findall(r'popovertarget="([^"]+)"', page) == re.findall(r'id="([^"]+)" popover', page)
    assert escape(str(WORDS["noise"][1])) in page and "<dfn>Cap</dfn>" in page
    assert not WORDS.keys() & WORDS_OF_STAFF.keys()


def test_words_of_pages_are_known_and_so_are_the_pages() -> None:
    assert set(help.WORDS) <= set(addresses(ipate_web.staff.urls.urlpatterns))
    assert {key for keys in help.WORDS.values() for key in keys.split()} <= set(WORDS | WORDS_OF_STAFF)


def test_the_glossary_has_them_all(client: Client) -> None:
    page = client.get("/glossary/").content.decode()
    assert all(f'<dt id="{key}">' in page for key in WORDS | WORDS_OF_STAFF)
