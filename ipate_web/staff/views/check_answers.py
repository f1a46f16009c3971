"""Answers to the check questions: what a count with noise says of each, and the button that draws one."""

from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.http import require_POST

from accounting.models import Release
from accounting.shares import share_free
from common.requests import SignedInRequest
from consent.models import Study
from consent.questions import Question
from consent.selectors import consent_form_in_force, policy_in_force
from consent.views.decision import questions_of
from ipate_web.staff.views.pages import faults_show, number_sent, study_page
from training.engine.drawings import SHARE, drawing_last
from training.services.check_answers import (
    AnswerCounts,
    Understanding,
    answer_counts,
    answers_sigma,
    check_answers_count,
)


@dataclass(frozen=True)
class QuestionUnderstood:
    """Check question, and what the newest count says of it; None before the first."""

    question: Question
    understood: Understanding | None


def understanding(study: Study) -> dict[str, Any]:
    """Context of ``staff/consent/understanding.html``; without questions where nobody is asked any."""
    form, policy = consent_form_in_force(study), policy_in_force(study)
    if form is None or policy is None or study.is_closed:
        return {}
    counted = answer_counts(study)
    return {
        "understanding": {
            "counted": counted,
            "questions": _worst_first(questions_of(study, policy), counted),
            "follows": drawing_last(study, Release.Kind.ANSWERS),
            "sigma": answers_sigma(study),
            "share": SHARE,
            "share_free": share_free(study),
            "form": form,
        }
    }


def _worst_first(questions: list[Question], counted: AnswerCounts | None) -> list[QuestionUnderstood]:
    by_key = {question.key: question for question in questions}
    if counted is None:
        return [QuestionUnderstood(question, None) for question in questions]
    return [QuestionUnderstood(by_key[each.key], each) for each in counted.questions if each.key in by_key]


@require_POST
@study_page("training.approve_run")
def check_answers(request: SignedInRequest, study: Study) -> HttpResponse:
    """Count the answers to the version in force."""
    with faults_show(request):
        check_answers_count(study=study, acting_user=request.user, follows=number_sent(request.POST, "follows"))
        messages.success(request, _("The answers are counted. None of them is stored any more."))
    return redirect("staff:consent_forms", study.slug)
