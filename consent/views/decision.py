"""Pages on which holders read about a study, choose, and review or withdraw their choice."""

import math
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.translation import get_language
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from consent import selectors, services
from consent.documents.letters import voice
from consent.forms import KEEPING, NOT_TAKING_PART, DecisionForm, DeclarationForm, Option, level_option
from consent.languages import own_name
from consent.models import ConsentEvent, ConsentForm, DataHolder, EpsilonPolicy, Level, LinkReissue, Study
from consent.people.circumstances import answering_for
from consent.promises.odds import CHANCE, right_guesses_at
from consent.promises.questions import KEYS, CheckQuestion, questions
from consent.promises.status import HolderStatus, columns_of_answer, holder_status, next_correction, promise_of
from consent.promises.uses import results_of, right_guesses_together, usage_of
from consent.services.erasures import erasure_ask, erasure_state
from consent.services.mail import confirmed_address
from consent.views.visits import (
    acting_user,
    answer_forget,
    answer_keep,
    answer_kept,
    answer_postpone,
    erasure_forget,
    erasure_kept,
    holder_page,
    own_page,
    visit_of,
)
from consent.wording.rendering import consent_text
from consent.wording.third_person import gettext as _

#: Name of the button for deciding later.
_LATER = "later"


def _decision_form(holder: DataHolder, data: Any = None) -> DecisionForm | None:
    """Return the decision form for a holder; None if the study has no published form or no approved policy."""
    consent_form = selectors.consent_form_in_force(holder.study)
    policy = selectors.policy_in_force(holder.study)
    if consent_form is None or policy is None:
        return None
    last = selectors.promise_last(holder)
    return DecisionForm(data, consent_form=consent_form, policy=policy, delta=holder.study.delta, last=last)


def _keeps_records(request: HttpRequest) -> bool:
    """Return whether a person who withdraws chose to keep their records stored; without an answer, they are erased."""
    return request.POST.get("records") == "keep"


def closed_page(request: HttpRequest, study: Study, holder: DataHolder | None) -> HttpResponse:
    """Show that a study is closed; redirect people who have decided to their choice and receipts."""
    decided = holder is not None and selectors.consent_current(holder) is not None
    return render(request, "consent/closed.html", {"study": study, "decided": decided}, status=410)


def _read(request: HttpRequest, holder: DataHolder, form: DecisionForm, chosen: str | None = None) -> HttpResponse:
    """Return the page for reading and answering; ``chosen`` is preselected if the form has not been submitted."""
    text = consent_text(form.consent_form, request.GET.get("text") or get_language() or "")
    status = holder_status(holder)
    context = {
        "status": status,
        "changes": status.changes(get_language() or ""),
        "announced": next_correction(holder.study, get_language() or ""),
        "columns": status.columns,
        "questions": questions(holder, form.high.right_guesses),
        "study": holder.study,
        "form": form,
        "text": text,
        "reading": text.language if request.GET.get("text") else None,
        "other_texts": [(code, own_name(code)) for code in form.consent_form.texts if code != text.code],
        "so_far": usage_of(holder).right_guesses,
        "has_results": bool(results_of(holder.study)),
        "chosen": None if form.is_bound and form.changed else form["choice"].value() or chosen,
    }
    return render(request, "consent/study.html", context, status=422 if form.errors else 200)


def questions_of(study: Study, policy: EpsilonPolicy) -> list[CheckQuestion]:
    """Return the check questions of a study under a policy, in the default order."""
    nobody = DataHolder(study=study, public_id=UUID(int=0))
    return questions(nobody, level_option(Level.HIGH, policy.high, study.delta).right_guesses)


def page_preview(study: Study, consent_form: ConsentForm, policy: EpsilonPolicy, language: str) -> dict[str, Any]:
    """Return the context of a study's page with an unpublished form, as shown to someone who has not decided."""
    form = DecisionForm(consent_form=consent_form, policy=policy, delta=study.delta)
    return {
        "preview": True,
        "study": study,
        "status": HolderStatus(),
        "questions": questions_of(study, policy),
        "form": form,
        "text": consent_text(consent_form, language),
        "other_texts": [],
        "so_far": CHANCE,
    }


@require_safe
@own_page
def my_studies(request: HttpRequest, holders: QuerySet[DataHolder]) -> HttpResponse:
    """List the studies of all people for whom the reader answers, with their decisions."""
    known = [(holder, holder_status(holder)) for holder in holders]
    usages = [usage_of(holder) for holder, _stands in known] if len(known) > 1 else []
    pairs = list(zip(known, usages, strict=False))
    # Costs of releases about different people do not add up.
    own = [usage for (_holder, status), usage in pairs if not status.answering.represents]
    ceiling = settings.PERSON_CEILING
    context = {
        "ceiling": right_guesses_at(math.sqrt(ceiling)) if ceiling is not None and usages else None,
        "full": [holder.study for (holder, _stands), usage in pairs if usage.is_full],
        "cards": [_card(*each) for each in known if not each[1].is_closed],
        "closed": [_card(*each) for each in known if each[1].is_closed],
        "represents": any(status.answering.represents for _holder, status in known),
        "together": right_guesses_together(own) if sum(usage.mu_squared > 0 for usage in own) > 1 else None,
    }
    return render(request, "consent/my_studies.html", context)


def _card(holder: DataHolder, status: HolderStatus) -> str:
    """Return a study's entry in the list of studies, for the person for whom the reader answers."""
    represents = status.answering.represents
    context = {
        "study": holder.study,
        "status": status,
        "represented": (holder, status.answering) if represents else None,
    }
    with voice(holder.known_as if represents else None):
        return render_to_string("consent/holding.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def study(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Show the consent form and the levels; a choice leads to a page that asks for confirmation."""
    if holder.study.is_closed:
        return closed_page(request, holder.study, holder)
    if _LATER in request.POST:
        return _postpone(request, holder)
    form = _decision_form(holder, request.POST or None)
    if form is None:
        return render(request, "consent/not_open.html", {"study": holder.study})
    if form.is_valid():
        answer_keep(request, holder.pk)
        return redirect("consent:check", holder.study.slug)
    answer = answer_kept(request, holder)
    draft = _decision_form(holder, answer) if answer else None
    # If the meaning of a level has changed, it is no longer the holder's choice.
    is_complete = answer is not None and draft is not None and draft.is_valid()
    return _read(request, holder, form, chosen=answer["choice"] if answer and is_complete else None)


def _postpone(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Store the ticked answer and redirect to the page for requesting a reminder, without recording a decision."""
    answer_postpone(request, holder)
    return redirect("consent:later", holder.study.slug)


@require_POST
@holder_page
def check_answer(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Store whether the first answer to a check question was right, until it is counted.

    The response does not show this.
    """
    form = None if holder.study.is_closed else _decision_form(holder)
    if form is None:
        return HttpResponse(status=204)
    question, answer = request.POST.get("question"), request.POST.get("answer")
    if question not in KEYS or answer not in ("0", "1"):
        return HttpResponseBadRequest()
    place = KEYS.index(question)
    right = questions(holder, form.high.right_guesses)[place].answers[int(answer)].right
    services.check_answer_keep(holder=holder, form=form.consent_form, place=place, right=right)
    return HttpResponse(status=204)


@require_safe
@holder_page
def check(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Ask for confirmation of the submitted answer; without an answer, redirect to the form.

    A withdrawal does not need a form. If the study is closed or has a new form, a separate page asks for confirmation.
    """
    answer = answer_kept(request, holder)
    status = holder_status(holder)
    form = _decision_form(holder, answer) if answer and not holder.study.is_closed else None
    confirmable = form is not None and form.is_valid()
    if answer and not confirmable and status.grants and answer["choice"] == NOT_TAKING_PART:
        return redirect("consent:withdraw", holder.study.slug)
    if answer is None or form is None:
        return redirect("consent:study", holder.study.slug)
    if not confirmable:
        answer_forget(request, holder)
        return _read(request, holder, form)
    return _check(request, holder, form, declaration_form(holder, form), answer.get("records", ""))


def declaration_form(holder: DataHolder, form: DecisionForm, data: Any = None) -> DeclarationForm | None:
    """Return the declaration form for a consent by a person who answers for the holder; None for other decisions."""
    answers = answering_for(holder)
    if not answers.represents or form.cleaned_data["choice"] == NOT_TAKING_PART:
        return None
    return DeclarationForm(data, answers=answers)


def _check(
    request: HttpRequest, holder: DataHolder, form: DecisionForm, declaration: DeclarationForm | None, records: str
) -> HttpResponse:
    """Return the page that repeats the valid form's answer, with any declaration or weaker promise to confirm."""
    chosen, last = form.chosen, form.last
    context = {
        "study": holder.study,
        "form": form,
        "declaration": declaration,
        "status": holder_status(holder),
        "columns": columns_of_answer(last, chosen) if last and chosen.epsilon else [],
        "promised": promise_of(last) if last else None,
        "records": records,
        "so_far": usage_of(holder).right_guesses,
    }
    status = 422 if form.errors or (declaration is not None and declaration.errors) else 200
    return render(request, "consent/check.html", context, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def decide(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Record a confirmed choice. A GET redirects to the form."""
    if _LATER in request.POST and not holder.study.is_closed:
        return _postpone(request, holder)
    form = _decision_form(holder, request.POST) if request.method == "POST" else None
    if form is None or holder.study.is_closed:
        return redirect("consent:study", holder.study.slug)
    if not form.is_valid():
        return _decided(holder) if _is_recorded(holder, form) else _read(request, holder, form)
    level, before = form.cleaned_data["choice"], selectors.consent_current(holder)
    is_repeated = answer_kept(request, holder) is None
    declaration = declaration_form(holder, form, request.POST)
    if form.chosen.weakens and not form.cleaned_data["weaker"]:
        form.add_error("weaker", _("Accept the weaker protection, or change your answer."))
    if form.errors or (declaration is not None and not declaration.is_valid()):
        return _check(request, holder, form, declaration, "")
    epsilon = form.last.epsilon if form.last else None
    give, keep = (
        partial(
            act,
            holder=holder,
            form=form.consent_form,
            policy=form.policy,
            text_read=form.cleaned_data["text"],
            talked=form.cleaned_data["talked"],
            acting_user=acting_user(request),
            declared=declaration.declaration() if declaration is not None else None,
        )
        for act in (services.consent_give, services.consent_keep)
    )
    try:
        if level == NOT_TAKING_PART:
            event = services.consent_refuse(
                holder=holder,
                acting_user=acting_user(request),
                form=form.consent_form,
                text_read=form.cleaned_data["text"],
                talked=form.cleaned_data["talked"],
                keep=_keeps_records(request),
            )
        elif level == KEEPING and epsilon is not None:
            event = keep(epsilon=epsilon)
        else:
            event = give(level=level, accepts_weaker_than=epsilon if form.chosen.weakens else None)
    except ValidationError as error:
        if _is_recorded(holder, form):  # by a simultaneous second click
            return _decided(holder)
        messages.warning(request, " ".join(error.messages))
        return redirect("consent:study", holder.study.slug)
    answer_forget(request, holder)
    if event == before and is_repeated:
        pass  # a second click, after the first one has shown the message
    elif event == before:
        messages.info(request, _("This is what you had already decided. Nothing has changed."))
    else:
        messages.success(request, _("Your decision is recorded. It applies from now on."))
    return _decided(holder)


def _decided(holder: DataHolder) -> HttpResponse:
    """Redirect to the recorded decision."""
    return redirect("consent:choice", holder.study.slug)


def _is_recorded(holder: DataHolder, form: DecisionForm) -> bool:
    """Return whether the decision in force was submitted by an earlier click on the same button."""
    current = selectors.consent_current(holder)
    if current is None or not current.grants or not form.is_of_today:
        return False
    sent = (form["choice"].value(), form.consent_form.pk, form.policy.pk)
    return (current.level, current.form_id, current.policy_id) == sent and selectors.lapse_of(current) is None


@require_safe
@holder_page
def choice(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Show the current decision, the first day on which it is valid, and earlier decisions."""
    events = events_of(holder)
    status, current, usage = holder_status(holder), events[0] if events else None, usage_of(holder)
    context = {
        "study": holder.study,
        "events": events,
        "current": current,
        "consent_form": selectors.consent_form_in_force(holder.study),
        "status": status,
        "changes": status.changes(get_language() or ""),
        "announced": next_correction(holder.study, get_language() or ""),
        "columns": status.columns,
        "option": option_in_force(current) if current and current.grants else None,
        "erasure": erasure_state(holder),
        "stores_records": not status.grants and bool(usage.records()),
        "so_far": usage.right_guesses,
        "results": results_of(holder.study),
        "links": LinkReissue.objects.filter(holder=holder).order_by("-sequence"),
        "visit": visit_of(request),
        "has_account": holder.user_id is not None,
        "unconfirmed": holder.user if holder.user and not confirmed_address(holder.user.pk) else None,
    }
    return render(request, "consent/choice.html", context)


def events_of(holder: DataHolder) -> list[ConsentEvent]:
    """Return the consent events of the holder, newest first."""
    related = ("form", "policy", "holder", "study")
    return list(ConsentEvent.objects.filter(holder=holder).order_by("-sequence").select_related(*related))


def option_in_force(event: ConsentEvent) -> Option:
    """Return the option that the holder chose in ``event``, with its current ε."""
    assert event.policy_id is not None  # The database ensures this, because the event grants a level.
    rule = selectors.EpsilonRule(event.study, timezone.now())
    epsilon = rule.epsilon(event.policy_id, event.level, event.recorded_at)
    return level_option(event.level, epsilon, event.study.delta)


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def withdraw(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Explain the effects of a withdrawal, and carry it out."""
    current = selectors.consent_current(holder)
    if current is not None and current.grants:
        if request.method != "POST":
            answer = answer_kept(request, holder)
            context = {"study": holder.study, "records": answer.get("records", "") if answer else ""}
            return render(request, "consent/withdraw.html", context)
        with suppress(ValidationError):  # A simultaneous second click found the consent already withdrawn.
            services.consent_withdraw(holder=holder, acting_user=acting_user(request), keep=_keeps_records(request))
        answer_forget(request, holder)
        messages.success(request, _("Your consent is withdrawn. This applies from now on."))
    return redirect("consent:choice", holder.study.slug)


@require_http_methods(["GET", "HEAD", "POST"])
@holder_page
def erase(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Explain which data remain after an erasure, and request the erasure for someone who does not take part.

    People whose records are already erased, or about to be, are redirected to the page with their choice, which shows
    the erasure.
    """
    current, state = selectors.consent_current(holder), erasure_state(holder)
    grants, settled = current is not None and current.grants, bool(state.requested_at or state.done_at)
    came_late = erasure_kept(request, holder)
    erasure_forget(request)
    if request.method == "POST" and current is not None and (grants or not settled):
        try:
            erasure_ask(holder=holder, acting_user=acting_user(request))
        except ValidationError:  # The person decided in another window to take part again.
            messages.warning(
                request, _("Your records were not erased, because you take part. To have them erased, withdraw first.")
            )
        else:
            messages.success(request, _("Your records are being erased."))
    elif current is not None and not (grants or settled):
        return render(request, "consent/erase.html", {"study": holder.study, "came_late": came_late})
    return redirect("consent:choice", holder.study.slug)
