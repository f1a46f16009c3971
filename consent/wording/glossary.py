"""Words that pages explain: all of them on one page, and some as pop-ups where they stand."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

#: Key → word, and what it means. What people who are asked meet.
WORDS: Final[dict[str, tuple[str | Promise, str | Promise]]] = {
    "study": (
        _("Study"),
        _(
            "One purpose for which one organisation wants to learn from people's records. Everything that "
            "is ever released for it counts together."
        ),
    ),
    "records": (
        _("Records"),
        _(
            "What an organisation holds about you, for example measurements or pictures. All of yours are "
            "protected as one."
        ),
    ),
    "protection": (
        _("Protection"),
        _(
            "A limit on how often a guess about a person can be right: whether they took part, or which records are "
            "theirs. It holds for guesses from all that is released. High protection is the strictest limit, low "
            "protection the loosest."
        ),
    ),
    "times": (
        _("Times in 100"),
        _(
            "Imagine 100 guesses between two answers that are equally likely beforehand. One question: "
            "did somebody take part? Another, for those who know that: which of two possible sets of "
            "records is theirs? A coin is right 50 times. The number says how many guesses could be right "
            "at most, even for somebody who knows everything else. Who has other reasons to believe one "
            "answer starts closer to it."
        ),
    ),
    "model": (
        _("Model"),
        _(
            "A program that has learned from examples, for instance to read handwriting. Small models "
            "that learn from records of people never leave the organisation and are deleted."
        ),
    ),
    "vote": (
        _("Vote"),
        _(
            "Records, or small models that learned from them, say what they see in a public example. "
            "Their answers are counted, and only what follows from the counts with random noise is passed "
            "on."
        ),
    ),
    "noise": (
        _("Noise"),
        _(
            "Random numbers that are added to totals. They limit how often somebody can tell from the "
            "results whether one person's records were part of them."
        ),
    ),
    "released": (
        _("Released"),
        _("Passed on to people outside, and therefore impossible to call back."),
    ),
    "withdrawing": (
        _("Withdrawing"),
        _("Ending your consent. From that moment your records are used for nothing new."),
    ),
    "receipt": (
        _("Receipt"),
        _("A copy of your decision that you can keep and show."),
    ),
    "pseudonym": (
        _("Pseudonym"),
        _("A name or number in place of yours, under which an organisation keeps your records."),
    ),
    "epsilon": (
        _("ε and δ (epsilon and delta)"),
        _(
            "The numbers with which experts write down the protection. δ is the same for everybody in a "
            "study; the smaller ε is, the stronger the protection. You need neither of them to decide."
        ),
    ),
}
#: What staff meet besides.
WORDS_OF_STAFF: Final[dict[str, tuple[str | Promise, str | Promise]]] = {
    "policy": (
        _("ε policy"),
        _(
            "What the three levels mean as numbers. The ethics committee proposes and approves it; a "
            "larger ε holds only for those who say yes to it."
        ),
    ),
    "cap": (
        _("Cap"),
        _(
            "The most that all runs together may take of one person's protection. It follows from the "
            "level that the person chose, and is written as μ²."
        ),
    ),
    "share": (
        _("Share"),
        _(
            "The part of every cap that one run may use. It is the same for everybody and public. All "
            "shares of a study add up to at most 100 %."
        ),
    ),
    "heads": (
        _("Head count"),
        _(
            "How many people chose a level: drawn once with noise, or a number that is public anyway. "
            "Plans rest on it, never on exact numbers."
        ),
    ),
    "run": (
        _("Run"),
        _(
            "One use of people's records: questions that are asked of them, what is released, and the "
            "model or table that follows."
        ),
    ),
    "public": (
        _("Public points"),
        _(
            "Rows or pictures that belong to nobody in the study. People's records are asked about them, "
            "so they may be shown to anybody."
        ),
    ),
    "student": (
        _("Student"),
        _("The model that is published. It learns from releases alone, never from people's records."),
    ),
    "register": (
        _("Release register"),
        _("The list of all that has ever left the study, with its cost. Nothing in it can be changed unnoticed."),
    ),
    "plan": (
        _("Plan"),
        _(
            "What a run would ask, cost and bring, computed from public numbers before anybody is asked. "
            "Planning costs nobody anything."
        ),
    ),
    "rehearsal": (
        _("Rehearsal"),
        _("A study on data that are nobody's secret. Nobody is asked and nothing is promised."),
    ),
}


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    """Explain the terms that holders and staff meet; open to everybody."""
    return render(request, "consent/glossary.html", {"words": WORDS, "words_of_staff": WORDS_OF_STAFF})
