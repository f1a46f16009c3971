"""Glossary page."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from consent.glossary import WORDS, WORDS_OF_STAFF


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    """Explain the terms that holders and staff meet; open to everybody."""
    return render(request, "consent/glossary.html", {"words": WORDS, "words_of_staff": WORDS_OF_STAFF})
