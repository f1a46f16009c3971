"""Pages of the consent form: draft, facts, publication, and results of the check questions."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.text import capfirst, format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, override
from django.views.decorators.http import require_POST, require_safe

from accounting.group_budgets import head_count_total
from accounting.models import Release
from accounting.shares import share_free
from common.requests import SignedInRequest
from common.sentences import gettext_noop
from common.templatetags.components import component_render
from consent import selectors, services
from consent.languages import language_of, translated_name
from consent.models import ConsentForm, ConsentFormDraft, ConsentFormProposal, Renewal, Study
from consent.models.recorded import actor_name
from consent.people.circumstances import day_of
from consent.promises.questions import CheckQuestion
from consent.selectors import consent_form_in_force, consent_form_languages, policy_in_force
from consent.services import Valid, draft_facts, form_digest
from consent.services.consent_forms import OBJECTION_DAYS
from consent.views.decision import page_preview, questions_of
from consent.wording.facts import fact_differences, fact_words, facts_missing, facts_of, study_of_form, study_with
from consent.wording.rendering import DiffLine, line_differences, markdown_html
from ipate_web.lists import DayField
from ipate_web.staff.committee import remark_form, remark_make
from ipate_web.staff.fields import AnswerField
from ipate_web.staff.pages import faults_in, faults_show, number_sent, render_page, study_form, study_page
from ipate_web.staff.policies import ConditionsForm, weaker_promises
from ipate_web.staff.settings import FactsForm
from training.services.drawings import (
    SHARE,
    AnswerCounts,
    Understanding,
    answer_counts,
    answers_sigma,
    check_answers_count,
    drawing_last,
)

#: Decision to publish the draft as a small correction.
CORRECTION = "correction"
_CORRECTION_TOLD = format_lazy(
    gettext_lazy(
        "Nothing: this is a small correction that changes a few words but no facts. It takes effect after {days} "
        "days unless a member of the committee objects"
    ),
    days=OBJECTION_DAYS,
)


#: Headings required by guidelines (docs/guidelines.md), with notes on what belongs under each. The site adds the rest.
HEADINGS = (
    (gettext_noop("What we ask"), gettext_noop("what the study wants to learn, and the records it learns from")),
    (
        gettext_noop("Why we ask you"),
        gettext_noop("how people were chosen, and that their answer has no other consequences"),
    ),
    (gettext_noop("What happens to your records"), gettext_noop("who prepares them, where, and for how long")),
    (gettext_noop("Benefits"), gettext_noop("who benefits, and that the person may not benefit")),
    (gettext_noop("Risks"), gettext_noop("what could go wrong, in words that everyone knows")),
    (gettext_noop("Who pays for the study"), gettext_noop("funding, and the interests of everyone involved")),
    (
        gettext_noop("What you will hear from us"),
        gettext_noop("which results people will get, and that none of them is about a single person"),
    ),
    (
        gettext_noop("Questions and complaints"),
        gettext_noop("who answers questions, and who is independent of the study"),
    ),
)


def headings_text(language: str) -> str:
    """Return a text with only the headings, in ``language`` or, if the site lacks it, in the site's first language."""
    with override(_site_language(language)):
        return "\n\n\n".join(f"# {_(heading)}" for heading, _what in HEADINGS)


def _site_language(language: str) -> str:
    spoken = language_of(language)
    return spoken if spoken in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


def _empty_headings(text: str, language: str) -> list[str]:
    """Return the site's predefined headings that have no text below them."""
    lines = [line for line in text.splitlines() if line.strip()]
    ours = set(headings_text(language).split("\n\n\n"))
    return [
        line.removeprefix("# ") for line, below in pairwise([*lines, "#"]) if line in ours and below.startswith("#")
    ]


class ConsentFormForm(forms.Form):
    """Form for the texts of a consent form, one field for each language. A draft may be unfinished.

    ``draft`` is the draft that it replaces.
    """

    seen = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(
        self,
        data: Any = None,
        *,
        study: Study,
        draft: ConsentFormDraft | None,
        acting_user: AbstractBaseUser,
        **kwargs: Any,
    ) -> None:
        self.digest = form_digest(draft.texts, draft_facts(draft)) if draft else ""
        self.draft, self.acting_user = draft, acting_user
        super().__init__(data, **kwargs)
        self.fields["seen"].initial = self.digest
        self.languages = list(consent_form_languages(study))
        for code in self.languages:
            self.fields[code] = forms.CharField(
                label=translated_name(code),
                widget=forms.Textarea(attrs={"rows": 16, "lang": code}),
                required=code == settings.LANGUAGE_CODE or code in study.languages,
                error_messages={"required": gettext_lazy("Write this text before you publish the form.")},
            )

    def clean(self) -> dict[str, Any]:
        if "publish" not in self.data:
            for code in self.languages:
                self.errors.pop(code, None)
        else:
            for code in self.languages:
                if empty := _empty_headings(self.cleaned_data.get(code, ""), code):
                    message = gettext_lazy("These headings have no text yet: %(headings)s")
                    self.add_error(code, ValidationError(message, params={"headings": ", ".join(empty)}))
        others = self.draft is not None and self.draft.saved_by_id != self.acting_user.pk
        if others and self.cleaned_data.get("seen") != self.digest:
            # Someone who saves again after this message does so deliberately.
            self.data = {**self.data.dict(), "seen": self.digest}  # type: ignore[attr-defined]
            message = gettext_lazy(
                "%(who)s has saved a different draft since you opened this page, and yours is not saved yet. Save "
                "again to replace it, or open the page in a second window to compare."
            )
            raise ValidationError(message, params={"who": actor_name(self.draft, "saved_by")})  # type: ignore[arg-type]
        return self.cleaned_data

    @property
    def texts(self) -> dict[str, str]:
        """Return the non-empty texts by language code."""
        return {code: str(text) for code in self.languages if (text := self[code].value())}


class PublicationForm(forms.Form):
    """Form for publishing ``draft`` after ``latest``, with the consequence for earlier consents if there may be any."""

    seen = forms.CharField(widget=forms.HiddenInput)
    valid_months = forms.IntegerField(
        label=gettext_lazy("How many months consent is valid"),
        required=False,
        min_value=1,
        max_value=600,
        help_text=gettext_lazy(
            "After that, everyone is asked again, and their records will not be used until they answer. People read "
            "this before they decide, and get an email a month before their consent ends. If you leave this and the "
            "day below empty, consent is valid until it is withdrawn."
        ),
    )
    valid_until = DayField(
        label=gettext_lazy("Or: valid until"),
        required=False,
        help_text=gettext_lazy("The last day on which consent to this version is valid, no matter when it was given."),
    )
    renewal = forms.ChoiceField(
        label=gettext_lazy("What happens to people who consented to an earlier version?"),
        choices=[*((choice.value, capfirst(choice.label)) for choice in Renewal), (CORRECTION, _CORRECTION_TOLD)],
        widget=forms.RadioSelect,
        help_text=gettext_lazy(
            "This decision is published with the version and cannot be changed. A second person from the ethics "
            "committee needs to publish the version."
        ),
    )

    answer_by = AnswerField()

    def __init__(self, data: Any, *, draft: ConsentFormDraft, latest: ConsentForm | None) -> None:
        self.digest = form_digest(draft.texts, draft_facts(draft))
        kept = {"valid_months": latest.valid_months, "valid_until": latest.valid_until} if latest else {}
        self.kept = Valid.of(latest) if latest else Valid()
        super().__init__(data, initial={"seen": self.digest, **kept})
        if latest is None:
            del self.fields["renewal"]

    def clean(self) -> dict[str, Any]:
        if self.cleaned_data.get("seen") != self.digest:
            # The page shows the new text, so the hidden field must match it.
            self.data = {**self.data.dict(), "seen": self.digest}  # type: ignore[attr-defined]
            raise ValidationError(
                gettext_lazy("The draft has changed since you opened this page. Read it again below.")
            )
        if self.cleaned_data.get("valid_months") and self.cleaned_data.get("valid_until"):
            self.add_error("valid_until", gettext_lazy("Enter either a number of months or a last day."))
        elif self.decision == CORRECTION and self.valid != self.kept:
            self.add_error(
                "renewal",
                gettext_lazy("A correction cannot change how long consent is valid. Propose this as a new version."),
            )
        return self.cleaned_data

    @property
    def valid(self) -> Valid:
        """Return the validity of a consent; the form must be valid."""
        return Valid(self.cleaned_data.get("valid_months"), self.cleaned_data.get("valid_until"))

    @property
    def decision(self) -> str:
        """Return the consequence for earlier consents; the form must be valid."""
        return self.cleaned_data.get("renewal", Renewal.NOT_ASKED)


@dataclass(frozen=True)
class QuestionUnderstood:
    """Check question with the results of the newest count, which are None before the first count."""

    question: CheckQuestion
    understood: Understanding | None


def understanding(study: Study) -> dict[str, Any]:
    """Return the context of the component ``understanding``, without questions if none are asked."""
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


def _worst_first(questions: list[CheckQuestion], counted: AnswerCounts | None) -> list[QuestionUnderstood]:
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
        messages.success(request, _("The answers have been counted and are no longer stored."))
    return redirect("staff:consent_forms", study.slug)


def _rendered(texts: dict[str, str]) -> list[tuple[str, str, SafeString]]:
    """Return code, name and HTML for each language with a text."""
    return [(code, translated_name(code), markdown_html(text)) for code, text in texts.items()]


def _differences(
    older: dict[str, str], newer: dict[str, str], studies: tuple[Study, Study]
) -> list[tuple[str, str, list[DiffLine], bool]]:
    """Return (code, name, lines, whether both versions read the same) for facts and changed texts in each language."""
    differences = []
    facts = fact_differences(*studies)
    if facts:
        differences.append(("", _("Facts"), facts, False))
    for code in {**newer, **older}:
        if newer.get(code) != older.get(code):
            lines = line_differences(older.get(code, ""), newer.get(code, ""))
            differences.append((code, translated_name(code), lines, all(line.change == "same" for line in lines)))
    return differences


@require_safe
@study_page("consent.view_dashboard")
def consent_forms(request: SignedInRequest, study: Study) -> HttpResponse:
    """List the versions of the consent form."""
    form = selectors.consent_form_in_force(study)
    context = {
        # Not joined, because a join would omit versions whose accounts have been deleted.
        "versions": ConsentForm.objects.filter(study=study).prefetch_related("published_by", "proposed_by"),
        "consent_form": form,
        "texts": _rendered(form.texts) if form else [],
        "draft": ConsentFormDraft.objects.filter(study=study).first(),
        "waiting": selectors.forms_waiting(study),
        **understanding(study),
    }
    return render_page(request, study, "staff/consent/forms.html", context)


@require_safe
@study_page("consent.view_dashboard")
def consent_form(request: SignedInRequest, study: Study, version: int) -> HttpResponse:
    """Show one published version and its differences from the previous one."""
    form = get_object_or_404(ConsentForm, study=study, version=version)
    before = ConsentForm.objects.filter(study=study, version=version - 1).first()
    context = {
        "consent_form": form,
        "before": before,
        "in_force": form == selectors.consent_form_in_force(study),
        "texts": _rendered(form.texts),
        "facts": fact_words(study_of_form(form)),
        "differences": _differences(before.texts, form.texts, (study_of_form(before), study_of_form(form)))
        if before
        else [],
    }
    return render_page(request, study, "staff/consent/form.html", context)


@study_form("consent.publish_consentform")
def consent_form_new(request: SignedInRequest, study: Study) -> HttpResponse:
    """Edit the draft with a preview, then save it or go on to publication."""
    draft = ConsentFormDraft.objects.filter(study=study).first()
    latest = selectors.consent_form_in_force(study)
    written = draft.texts if draft else latest.texts if latest else None
    if written is None:
        written = {code: headings_text(code) for code in consent_form_languages(study)}
    form = ConsentFormForm(request.POST or None, study=study, draft=draft, acting_user=request.user, initial=written)
    if form.is_valid():
        services.consent_form_draft_save(study=study, acting_user=request.user, texts=form.texts)
        if "publish" in request.POST:
            return redirect("staff:consent_form_publish", study.slug)
        messages.success(request, _("Draft saved. Data holders cannot see it."))
        return redirect("staff:consent_form_new", study.slug)
    context = {
        "form": form,
        "latest": latest,
        "draft": draft,
        "facts": fact_words(_drafted(study, draft)),
        "missing": facts_missing(_drafted(study, draft)),
        "texts": _rendered(form.texts),
        "saved": _rendered(draft.texts) if draft else [],
        "headings": [(_(heading), _(what)) for heading, what in HEADINGS],
        **understanding(study),
    }
    return render_page(request, study, "staff/consent/new.html", context)


def _drafted(study: Study, draft: ConsentFormDraft | None) -> Study:
    """Return the study with the facts of a draft, or else with its own facts."""
    return study_with(study, services.draft_facts(draft)) if draft else study


@study_form("consent.publish_consentform")
def consent_form_facts(request: SignedInRequest, study: Study) -> HttpResponse:
    """Edit the facts of the next version, which are kept with the draft.

    Before the first version is published, these facts are the study's settings, which an operator writes.
    """
    latest = selectors.consent_form_in_force(study)
    if latest is None:
        return redirect("staff:study_edit", study.slug)
    draft = ConsentFormDraft.objects.filter(study=study).first()
    form = FactsForm(request.POST or None, study=_drafted(study, draft))
    if form.is_valid():
        texts = draft.texts if draft else latest.texts
        services.consent_form_draft_save(study=study, acting_user=request.user, texts=texts, facts=form.facts)
        messages.success(request, _("Draft saved. Data holders cannot see it."))
        return redirect("staff:consent_form_new", study.slug)
    context = {"form": form, "latest": latest}
    return render_page(request, study, "staff/consent/facts_edit.html", context)


@require_POST
@study_page("consent.publish_consentform")
def consent_form_preview(request: SignedInRequest, study: Study) -> HttpResponse:
    """Return the draft's preview, which htmx updates during typing."""
    texts = _rendered(ConsentFormForm(request.POST, study=study, draft=None, acting_user=request.user).texts)
    return HttpResponse(component_render("form_texts", texts=texts))


@study_form("consent.publish_consentform")
def consent_form_publish(request: SignedInRequest, study: Study) -> HttpResponse:
    """Show the draft's changes and their consequence for earlier consents, with a form for proposing the draft."""
    draft = ConsentFormDraft.objects.filter(study=study).first()
    if draft is None:
        return redirect("staff:consent_form_new", study.slug)
    latest = selectors.consent_form_in_force(study)
    form = PublicationForm(request.POST or None, draft=draft, latest=latest)
    if form.is_valid():
        with faults_in(form):
            messages.success(request, _proposed(study, request.user, draft, form))
            return redirect("staff:study", study.slug)
    context: dict[str, Any] = {
        "form": form,
        "latest": latest,
        "affected": head_count_total(study),
        "weaker": weaker_promises(study, selectors.policy_in_force(study)),
        "texts": _rendered(draft.texts),
        "facts": fact_words(_drafted(study, draft)),
        "missing": facts_missing(_drafted(study, draft)),
        "differences": (
            _differences(latest.texts, draft.texts, (study_of_form(latest), _drafted(study, draft))) if latest else []
        ),
    }
    return render_page(request, study, "staff/consent/publish.html", context)


def _proposed(study: Study, user: AbstractBaseUser, draft: ConsentFormDraft, decided: PublicationForm) -> str:
    """Propose the draft, or announce it as a correction; return a message about this. Raises ValidationError."""
    if decided.decision == CORRECTION:
        if draft.facts is not None and draft.facts != facts_of(study):
            raise ValidationError(_("A correction cannot change facts. Propose this as a new version."))
        proposal = services.consent_form_correct(study=study, acting_user=user, texts=draft.texts)
        assert proposal.objection_until is not None, "a correction has an objection period"
        return _("The correction has been announced. It takes effect on %(day)s unless someone objects.") % {
            "day": date_format(day_of(proposal.objection_until), "DATE_FORMAT")
        }
    services.consent_form_propose(
        study=study,
        acting_user=user,
        texts=draft.texts,
        renewal=decided.decision,
        valid=decided.valid,
        answer_by=decided.cleaned_data["answer_by"],
        facts=services.draft_facts(draft),
    )
    return _(
        "The form has been proposed. Data holders will see it once a second person from the ethics committee has "
        "approved it."
    )


@study_form("consent.publish_consentform")
def consent_form_proposal(request: SignedInRequest, study: Study, sequence: int) -> HttpResponse:
    """Show a proposed form's changes and the people affected, with forms to approve, reject, comment or object."""
    proposal = get_object_or_404(ConsentFormProposal, study=study, sequence=sequence)
    remark = remark_form(request)
    if request.method == "POST" and not request.user.has_perm("consent.approve_consentform", study):
        raise PermissionDenied
    if remark_make(request, proposal, remark):
        return redirect("staff:consent_form_proposal", study.slug, sequence)
    if request.method == "POST" and not remark.is_bound:
        with faults_show(request):
            conditions = request.POST.get("conditions", "")[:5000]
            services.proposal_approve(proposal=proposal, acting_user=request.user, conditions=conditions)
            published = ConsentForm.objects.filter(proposal=proposal).first()
            if published is None:
                message = _("Your approval is recorded. The form will be published after the last approval.")
            else:
                message = _("Version %(version)d has been published. Data holders will see it from now on.") % {
                    "version": published.version
                }
            messages.success(request, message)
        return redirect("staff:consent_forms", study.slug)
    before = ConsentForm.objects.filter(study=study, version=proposal.follows).first()
    context = {
        "proposal": proposal,
        "before": before,
        "affected": head_count_total(study),
        "weaker": weaker_promises(study, selectors.policy_in_force(study)),
        "is_own": proposal.proposed_by_id == request.user.pk,
        "is_waiting": selectors.is_waiting(proposal),
        "published": ConsentForm.objects.filter(proposal=proposal).first(),
        "form": ConditionsForm(),
        "texts": _rendered(proposal.texts),
        "facts": fact_words(study_of_form(proposal)),
        "differences": (
            _differences(before.texts, proposal.texts, (study_of_form(before), study_of_form(proposal)))
            if before
            else []
        ),
        "remark": remark,
        "remarks": proposal.remarks.prefetch_related("made_by"),
    }
    return render_page(request, study, "staff/consent/proposal.html", context, status=422 if remark.errors else 200)


@require_safe
@study_page("consent.publish_consentform")
def consent_form_as_read(request: SignedInRequest, study: Study, language: str) -> HttpResponse:
    """Show the draft, or the proposal in ``?proposal=``, on the page as holders will read it."""
    sequence, valid = number_sent(request.GET, "proposal"), services.FOR_GOOD
    if sequence is not None:
        proposal = get_object_or_404(ConsentFormProposal, study=study, sequence=sequence)
        texts, valid = proposal.texts, services.Valid.of(proposal)
        shown = study_of_form(proposal)
    else:
        draft = ConsentFormDraft.objects.filter(study=study).first()
        if draft is None:
            return redirect("staff:consent_form_new", study.slug)
        texts, shown = draft.texts, _drafted(study, draft)
    if language not in texts:
        raise Http404
    policy = selectors.policy_in_force(study)
    if policy is None:
        messages.warning(request, _("The preview shows each level's odds, so approve an ε policy first."))
        return redirect("staff:policies", study.slug)
    latest = selectors.consent_form_in_force(study)
    version = latest.version + 1 if latest else 1
    form = ConsentForm(version=version, texts=texts, valid_months=valid.months, valid_until=valid.until)
    with override(_site_language(language)):
        return render(request, "consent/study.html", page_preview(shown, form, policy, language))
