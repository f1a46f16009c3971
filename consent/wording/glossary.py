"""Terms that pages explain: all terms on one page, and some as pop-ups where they occur."""

from typing import Final

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_safe

#: Key → word and its meaning, for words that data holders come across.
WORDS: Final[dict[str, tuple[str | Promise, str | Promise]]] = {
    "study": (
        _("Study"),
        _(
            "One purpose for which one organisation wants to learn from people's records. Everything ever released "
            "for it counts towards the same limit."
        ),
    ),
    "records": (
        _("Records"),
        _(
            "The information an organisation holds about you, for example measurements or pictures. All of it is "
            "protected as one unit."
        ),
    ),
    "protection": (
        _("Protection"),
        _(
            "A limit on how often a guess about a person can be right: whether they took part, or which records are "
            "theirs. It covers guesses based on everything that is released. High protection is the strictest limit, "
            "low protection the loosest."
        ),
    ),
    "times": (
        _("Times in 100"),
        _(
            "Imagine someone guessing 100 times between two answers that are equally likely beforehand: whether a "
            "person took part or, if that is known, which of two possible sets of records is theirs. Tossing a coin, "
            "they would be right 50 times. The number is an upper limit on how many guesses could be right, even if "
            "the guesser knows everything else. Someone who already has reasons to believe one answer does not start "
            "at 50."
        ),
    ),
    "model": (
        _("Model"),
        _(
            "A program that has learned from examples, for instance to read handwriting. Small models that learn "
            "from people's records never leave the organisation and are deleted."
        ),
    ),
    "vote": (
        _("Vote"),
        _(
            "Small models that learned from people's records, or the records themselves, each give an answer about a "
            "public example. The answers are counted and random noise is added. Only results from these noisy counts "
            "are passed on."
        ),
    ),
    "noise": (
        _("Noise"),
        _(
            "Random numbers that are added to totals. They limit how often the results reveal whether one person's "
            "records were included."
        ),
    ),
    "released": (
        _("Released"),
        _("Passed on to people outside the organisation. This cannot be undone."),
    ),
    "withdrawing": (
        _("Withdrawing"),
        _("Ending your consent. From that moment your records will not be used for anything new."),
    ),
    "receipt": (_("Receipt"), _("A copy of your decision that you can keep and show.")),
    "pseudonym": (
        _("Pseudonym"),
        _("A name or number that an organisation uses for your records instead of your name."),
    ),
    "epsilon": (
        _("ε and δ (epsilon and delta)"),
        _(
            "The numbers experts use to state the protection. δ is the same for everyone in a study. The smaller ε "
            "is, the stronger the protection. You don't need either of them to decide."
        ),
    ),
}
#: Additional words for staff.
WORDS_OF_STAFF: Final[dict[str, tuple[str | Promise, str | Promise]]] = {
    "policy": (
        _("ε policy"),
        _(
            "The three levels as numbers. The ethics committee proposes and approves them. A larger ε applies only "
            "to people who agree to it."
        ),
    ),
    "cap": (
        _("Cap"),
        _(
            "The most that all runs together may use of one person's privacy budget. It follows from the level that "
            "the person chose, and is given as μ²."
        ),
    ),
    "share": (
        _("Share"),
        _(
            "The part of every cap that one run may use. It is public and the same for everyone. All shares of a "
            "study add up to at most 100 %."
        ),
    ),
    "heads": (
        _("Head count"),
        _(
            "How many people chose a level: either counted once with noise added, or a number that is already "
            "public. Plans use this number, never an exact count."
        ),
    ),
    "run": (
        _("Run"),
        _("One use of people's records: the questions asked, what is released, and the resulting model or table."),
    ),
    "public": (
        _("Public points"),
        _(
            "Rows or pictures that do not belong to anyone in the study, so anyone may see them. People's records "
            "are used to answer questions about these rows or pictures."
        ),
    ),
    "student": (_("Student"), _("The published model. It learns only from releases, never from people's records.")),
    "register": (
        _("Release register"),
        _(
            "The list of everything that the study has ever released, and its cost. Any change to the list "
            "would be noticed."
        ),
    ),
    "plan": (
        _("Plan"),
        _(
            "The questions, cost and expected result of a run, computed from public numbers before the run starts. "
            "Planning uses no budget."
        ),
    ),
    "rehearsal": (
        _("Rehearsal"),
        _("A study on data that is not secret. It asks no one for consent and makes no promises."),
    ),
}


@require_safe
def glossary(request: HttpRequest) -> HttpResponse:
    """Explain the terms used for holders and staff; open to everyone."""
    return render(request, "consent/glossary.html", {"words": WORDS, "words_of_staff": WORDS_OF_STAFF})
