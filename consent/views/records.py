"""Pages of a holder's records: receipts, uses of their data, and an export of everything stored about them."""

import base64
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.translation import get_language
from django.views.decorators.http import require_safe

from consent.documents.receipts import receipt_digests, receipt_facts, receipt_json, receipt_pdf, receipt_sentence
from consent.languages import own_name
from consent.models import (
    CheckAnswers,
    Circumstance,
    ConsentEvent,
    DataHolder,
    Disposal,
    HolderAddress,
    Invitation,
    Letter,
    LevelAccess,
    LinkReissue,
    Mail,
)
from consent.promises.questions import KEYS
from consent.promises.status import agreement_of, holder_status, offer_of, promise_of
from consent.promises.uses import results_of, timeline, usage_of
from consent.selectors import consent_form_in_force
from consent.services.checkpoints import checkpoint_covering, proof_of
from consent.services.decisions import answer_draft_of
from consent.services.paper import scan_load
from consent.views.decision import events_of, option_in_force
from consent.views.visits import holder_page
from consent.wording.facts import fact_words, study_of_form
from consent.wording.rendering import consent_text
from consent.wording.third_person import gettext as _


def _receipt_page(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Decorator for views of the holder's ``n``-th decision.

    Each holder's decisions are numbered from 1, so that numbers reveal nothing about other people's decisions.
    """

    @require_safe
    @holder_page
    def wrapped(request: HttpRequest, holder: DataHolder, n: int) -> HttpResponse:
        events = list(reversed(events_of(holder)))[:n]
        if not 0 < n == len(events):
            raise Http404
        return view(request, events)

    return wrapped


@_receipt_page
def receipt(request: HttpRequest, events: list[ConsentEvent]) -> HttpResponse:
    """Show the receipt of a decision."""
    event = events[-1]
    context = {
        "study": event.study,
        "n": len(events),
        "sentence": receipt_sentence(event),
        "read": event.form is not None,
        "facts": receipt_facts(event),
        "digests": receipt_digests(event),
        "status": holder_status(event.holder),
        "checkpoint": checkpoint_covering(event),
        "has_checkpoints": bool(settings.CHECKPOINT_KEYS),
    }
    return render(request, "consent/receipt.html", context)


@_receipt_page
def receipt_proof(request: HttpRequest, events: list[ConsentEvent]) -> HttpResponse:
    """Download the proof that the last signed checkpoint covers a decision."""
    checkpoint = checkpoint_covering(events[-1])
    if checkpoint is None:
        raise Http404
    return _download(_json(proof_of(events[-1], checkpoint)), f"proof-{len(events)}.json")


@_receipt_page
def receipt_text(request: HttpRequest, events: list[ConsentEvent]) -> HttpResponse:
    """Show the version of the information that was read for a decision, even if there is a newer version."""
    event = events[-1]
    if event.form is None:
        raise Http404
    text = consent_text(event.form, request.GET.get("text") or event.text_read or get_language() or "")
    newest = consent_form_in_force(event.study)
    context = {
        "study": event.study,
        "n": len(events),
        "form": event.form,
        "newest": newest.version if newest else None,
        "text": text,
        "facts": fact_words(study_of_form(event.form, event.study)),
        "other_texts": [(code, own_name(code)) for code in event.form.texts if code != text.code],
    }
    return render(request, "consent/receipt_text.html", context)


@_receipt_page
def receipt_as_pdf(request: HttpRequest, events: list[ConsentEvent]) -> HttpResponse:
    """Download the receipt of a decision as PDF."""
    return _download(
        HttpResponse(receipt_pdf(events[-1]), content_type="application/pdf"), f"receipt-{len(events)}.pdf"
    )


@_receipt_page
def receipt_as_json(request: HttpRequest, events: list[ConsentEvent]) -> HttpResponse:
    """Download the receipt of a decision as JSON."""
    return _download(_json(receipt_json(events)), f"receipt-{len(events)}.json")


@require_safe
@holder_page
def uses(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Show the runs that used the holder's data, their publications, and upper bounds on the cost of each run."""
    usage, status = usage_of(holder), holder_status(holder)
    option = option_in_force(status.current) if status.current is not None and status.grants else None
    context = {
        "study": holder.study,
        "status": status,
        "uses": usage.uses,
        "entries": timeline(usage.uses, results_of(holder.study)),
        "so_far": usage.right_guesses,
        "so_far_records": usage.right_record_guesses,
        # After people choose a stronger level, their records are not used if earlier releases already exceed that
        # level.
        "limit": max(option.right_guesses, usage.right_guesses) if option else None,
    }
    return render(request, "consent/uses.html", context)


@require_safe
@holder_page
def export(request: HttpRequest, holder: DataHolder) -> HttpResponse:
    """Export everything stored about the holder in this study, as JSON."""
    usage = usage_of(holder)
    invitations = Invitation.objects.filter(holder=holder).order_by("created_at")
    events = list(reversed(events_of(holder)))
    data: dict[str, Any] = {
        "exported_at": timezone.now().isoformat(),
        "study": {
            "title": holder.study.title,
            "controller": holder.study.controller,
            "contact": holder.study.contact,
            "contact_telephone": holder.study.contact_telephone,
        },
        "holder": {
            "pseudonym": holder.known_as,
            "records_erased": holder.erased_at and holder.erased_at.isoformat(),
            "id": str(holder.public_id),
            "since": holder.created_at.isoformat(),
            "account": {"user_name": holder.user.get_username(), "email": holder.user.email} if holder.user else None,
        },
        "invitations": [
            {
                "made": invitation.created_at.isoformat(),
                "last_opened": invitation.last_used_at and invitation.last_used_at.isoformat(),
                "revoked": invitation.revoked_at and invitation.revoked_at.isoformat(),
                "letter_returned": invitation.returned_at and invitation.returned_at.isoformat(),
            }
            for invitation in invitations
        ],
        "who_answers": [
            {
                "recorded": each.recorded_at.isoformat(),
                "what": each.kind,
                "until": each.until and each.until.isoformat(),
                "reason": each.reason,
            }
            for each in Circumstance.objects.filter(holder=holder)
        ],
        "letters": [
            {"kind": letter.kind, "made": letter.made_at.isoformat()}
            for letter in Letter.objects.filter(holder=holder).order_by("made_at")
        ],
        "new_links": [link.issued_at.isoformat() for link in LinkReissue.objects.filter(holder=holder)],
        "addresses": [
            {"way": left.way, "email": left.email, "confirmed": left.confirmed_at and left.confirmed_at.isoformat()}
            for left in HolderAddress.objects.filter(holder=holder)
        ],
        "mails": [
            {"kind": mail.kind, "made": mail.created_at.isoformat(), "state": mail.state}
            for mail in Mail.objects.filter(_to(holder)).order_by("created_at")
        ],
        "account": _account(holder, usage.right_guesses),
        "erasures": [
            {"what": row.kind, "when": row.recorded_at.isoformat(), "rows": row.rows, "scans": row.files}
            for row in Disposal.objects.filter(holder=holder).order_by("sequence")
        ],
        "decisions": receipt_json(events)["consent_record"]["events"] if events else [],
        "uses": [{"purpose": use.purpose, "state": use.state, "since": use.since.isoformat()} for use in usage.uses],
        "scans": [_scan(event) for event in events if event.evidence],
        "looks_at_your_choice": [
            {"when": look.seen_at.isoformat(), "by": _name(look.seen_by_id), "reason": look.reason}
            for look in LevelAccess.objects.filter(holder=holder)
        ],
        "ticked_to_decide_later": answer_draft_of(holder),
        "check_questions": [_answers(row) for row in CheckAnswers.objects.filter(holder=holder).select_related("form")],
        "records": usage.records(),
    }
    return _download(_json(data), f"my-data-{holder.study.slug}.json")


def _to(holder: DataHolder) -> Q:
    """Return the condition for emails about the study to a holder's account or to the address that they gave."""
    left = Q(address__holder=holder)
    return left | Q(study=holder.study, user=holder.user_id) if holder.user_id else left


def _account(holder: DataHolder, so_far: int) -> dict[str, Any]:
    """Return the part of the account that is shown: the promise, and a public bound on the spending.

    The amount itself depends on the holder's records, so someone who made a holder show it would learn something that
    no release reveals. The bound depends only on public information and on the holder's choice; see docs/rights.md.
    """
    status = holder_status(holder)
    last = status.promise if status.grants else None
    return {
        "right_guesses_in_100_promised_when_decided": agreement_of(last).right_guesses if last else None,
        "right_guesses_in_100_promised_at_most": promise_of(last).right_guesses if last else None,
        "right_guesses_in_100_at_this_level_for_new_consents": offer_of(last).right_guesses if last else None,
        "right_guesses_in_100_by_all_releases_so_far_at_most": so_far,
        "amount": None,
        "why_no_amount": _(
            "How much of your limit was really used depends on your records. If we showed you that number, someone "
            "could force you to reveal it and learn something about your records. That is why no one can see it, and "
            "why the number above is an upper limit."
        ),
    }


def _answers(row: CheckAnswers) -> dict[str, Any]:
    """Return whether each of the holder's first answers was right, for answers that are still stored."""
    answers = {key: bool(row.right >> place & 1) for place, key in enumerate(KEYS) if row.answered >> place & 1}
    return {"form_version": row.form.version, "first_answer_right": answers, "counted": row.counted}


def _scan(event: ConsentEvent) -> dict[str, Any]:
    """Return the scan of a decision on paper; its content is None if the file no longer exists."""
    name, content = scan_load(event.study, event.evidence) or (None, None)
    return {
        "signed_on": event.signed_on and event.signed_on.isoformat(),
        "sha256": event.evidence,
        "file_name": name,
        "content_base64": content and base64.b64encode(content).decode(),
    }


def _name(user_id: int) -> str:
    """Return a staff member's user name; empty if the account has been deleted."""
    return get_user_model().objects.filter(pk=user_id).values_list("username", flat=True).first() or ""


def _json(data: dict[str, Any]) -> JsonResponse:
    return JsonResponse(data, json_dumps_params={"ensure_ascii": False, "indent": 2})


def _download(response: HttpResponse, name: str) -> HttpResponse:
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
