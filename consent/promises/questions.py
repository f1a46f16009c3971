"""Questions that let a holder check whether they understood the information.

The site stores only whether a holder's first answer to each question was right. This is deleted once it has been
counted with noise; see :mod:`training.services.drawings`.
"""

import hashlib
from dataclasses import dataclass
from itertools import combinations

from consent.models import DataHolder
from consent.wording.facts import study_text
from consent.wording.third_person import gettext as _

#: Names of the questions, in the order in which they are stored and released.
KEYS = ("protection", "odds", "access", "withdrawal")
#: Sets of questions that show the right answer first: always two of the four, so that no position is a safe guess.
_RIGHT_FIRST = tuple(combinations(range(len(KEYS)), len(KEYS) // 2))


@dataclass(frozen=True)
class CheckAnswer:
    """Answer to a check question, with an explanation that readers can unfold."""

    text: str
    explanation: str
    right: bool


@dataclass(frozen=True)
class CheckQuestion:
    """Question with its two answers in the order in which they are shown."""

    key: str
    text: str
    answers: tuple[CheckAnswer, CheckAnswer]

    @property
    def right_answer(self) -> CheckAnswer:
        """The right answer."""
        return next(answer for answer in self.answers if answer.right)


def questions(holder: DataHolder, right_guesses: int) -> list[CheckQuestion]:
    """Return questions for a holder; the order of answers differs between people but is the same each time.

    ``right_guesses``: right guesses in 100 at the level that the second question is about.
    """
    number = int.from_bytes(hashlib.sha256(holder.public_id.bytes).digest()[:8])
    right_first = _RIGHT_FIRST[number % len(_RIGHT_FIRST)]
    listed = []
    for place, (text, wrong, right) in enumerate(_questions(holder, right_guesses)):
        answers = (CheckAnswer(*wrong, right=False), CheckAnswer(*right, right=True))
        listed.append(CheckQuestion(KEYS[place], text, answers[::-1] if place in right_first else answers))
    return listed


def _questions(holder: DataHolder, guesses: int) -> list[tuple[str, tuple[str, str], tuple[str, str]]]:
    """Return (question, (wrong answer, explanation), (right answer, explanation)) for each question."""
    study, odds = holder.study, {"right": guesses}
    sees = _("Yes. This organisation holds your records and prepares them for learning, so it can see them.")
    if study.recipients:
        sees += " " + _("Your records can also be seen by: %(recipients)s") % {
            "recipients": study_text(study, "recipients")
        }
    return [
        (
            _("What does high protection mean?"),
            (
                _("The study learns the most from my records."),
                _("No, it is the other way round. With high protection, guesses about you are right least often."),
            ),
            (
                _("Guesses about me are right least often."),
                _("Yes. Of the three levels, it has the strictest limit on how often such guesses can be right."),
            ),
        ),
        (
            _("What does “at most %(right)d times in 100” mean?") % odds,
            (
                _("The records of %(right)d people in 100 become known.") % odds,
                _("No. It is not about who gets to see records. It is about guessing whether you took part at all."),
            ),
            (
                _("How often a guess about whether I took part can be right."),
                _(
                    "Yes. A coin toss would be right 50 times in 100. Even with everything that is ever released, a "
                    "guess can be right at most %(right)d times, if both answers are equally likely beforehand."
                )
                % odds,
            ),
        ),
        (
            _("Who sees my records?"),
            (
                _("The researchers who use what was learned."),
                _("No. They see only results with added noise, and what was learned from those."),
            ),
            (study.controller, sees),
        ),
        (
            _("What happens if I withdraw?"),
            (
                _("Everything that was ever learned from my records is undone."),
                _("No. Results released before that cannot be taken back. The limit you chose still applies to them."),
            ),
            (
                _("My records will not be used for anything new."),
                _("Yes, from that moment. Results released before that cannot be taken back."),
            ),
        ),
    ]
