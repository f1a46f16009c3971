"""Documents that the hub and the sites sign: the alliance as the consent form describes it, and each approved run."""

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext as _

from common.sentences import gettext_noop
from consent.selectors import consent_form_in_force
from consent.services.changes import changes_recorded
from learning.sites.documents import AllianceDocument, Refused, RunDocument, public_key, renewed_site, sign
from training.alliances.documents import alliance_verify, digest_of, document_text, points_digest, signed_text
from training.alliances.wire import agreement_make, identity, known_identity, site_of
from training.models import Alliance, JointRun, Run
from training.notices import notify_key_waiting

logger = logging.getLogger(__name__)


def refusal(error: Refused) -> ValidationError:
    """Log the details of an invalid document that was received, and return the error to show."""
    logger.warning("Refused: %s", error)
    return ValidationError(
        _("The documents signed by the hub and the sites do not match, or are not signed yet. The log has the details.")
    )


def facts_of_alliance(alliance: Alliance) -> dict[str, Any]:
    """Return the consent form's facts about an alliance: its members, and the digest of the signed document."""
    document = alliance.document
    return {
        "name": document.name,
        "hub": alliance.terms["hub"],
        "sites": sorted(document.sites),
        "digest": alliance.founding.digest(),  # replacing a key does not change it
    }


def form_describes(alliance: Alliance) -> bool:
    """Return whether the consent form in force describes exactly this alliance.

    If so, every valid consent covers the alliance, because everyone is asked again when a new version changes this
    fact.
    """
    form = consent_form_in_force(alliance.study)
    return form is not None and alliance.is_signed and (form.facts or {}).get("alliance") == facts_of_alliance(alliance)


def document_keep(alliance: Alliance, message: Mapping[str, Any]) -> bool:
    """Store the hub's document of an alliance at a site; return whether it is new.

    A document that replaces the stored one waits until an operator of the site confirms it.

    Raises:
        Refused: The document contradicts the stored one, is not signed, or does not list this site with its key.
    """
    values: dict[str, Any] = {}
    texts = [*message["former"], {"content": message["content"], "signature": message["signature"]}]
    if message["content"] and not alliance.is_signed:
        if alliance_latest(texts).sites.get(alliance.own_name) != public_key(identity(alliance)):
            raise Refused(gettext_noop("The hub has signed an alliance that does not include this site and its key."))
        document = signed_text(AllianceDocument, texts[-1]).document
        if document.terms != digest_of(document_text(message["terms"])):
            raise Refused(
                gettext_noop(
                    "The hub has signed different terms from those that it sends. Ask the people who run the hub."
                )
            )
        names = ("name", "content", "signature", "terms", "former")
        values = {name: message[name] for name in names} | {"colluding": document.colluding}
    elif alliance.is_signed:
        offered = _documents_after(alliance, texts)
        if offered != alliance.offered:
            values["offered"] = offered
    if message["ended"] and alliance.left_at is None:
        values["left_at"] = timezone.now()
    if not values:
        return False
    with changes_recorded([alliance], acting_user=None):
        for name, value in values.items():
            setattr(alliance, name, value)
        alliance.save(update_fields=list(values))
        if values.get("offered"):
            notify_key_waiting(alliance)
    return True


def alliance_latest(texts: Sequence[Mapping[str, str]]) -> AllianceDocument:
    """Return an alliance's latest document after checking that each one replaces exactly one key. Raises Refused."""
    first, *others = [signed_text(AllianceDocument, each) for each in texts]
    document = first.checked(first.document.hub, "the hub")
    for each in others:
        renewed_site(document, each.checked(document.hub, "the hub"))
        document = each.document
    return document


def _documents_after(alliance: Alliance, texts: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the hub's documents that replace the document stored at a site. Raises Refused."""
    contents = [each["content"] for each in texts]
    if contents[-1] in [each["content"] for each in alliance.former]:
        raise Refused(
            gettext_noop(
                "The hub is sending an earlier alliance document, probably because a backup was restored. Ask the "
                "people who run the hub to replace the key again."
            )
        )
    if alliance.content not in contents:
        raise Refused(
            gettext_noop(
                "The hub has signed a different alliance from the one recorded at this site. Ask the people who run "
                "the hub."
            )
        )
    after = list(texts[contents.index(alliance.content) + 1 :])
    if after:
        document = alliance_latest([{"content": alliance.content, "signature": alliance.signature}, *after])
        identity(alliance, document.sites[alliance.own_name])
    return after


# --- Approvals --------------------------------------------------------------------------------------------------------


#: Fields of a run that sites copy from the hub without changes.
COMMON = (
    *("title", "purpose", "method", "variant", "choices", "student_learner", "student_parameters"),
    *("batch_size", "wanted_labels"),
)


def joint_check(run: Run) -> None:
    """Check that this hub or site can sign a joint run.

    Raises:
        ValidationError: At a site, if the consent form in force does not describe the alliance or the site has left it;
            at a hub, if a site has left.
    """
    alliance = run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    if alliance.left_at is not None:
        raise ValidationError(_("The alliance has ended for this study."))
    renewal_check(alliance)
    try:
        alliance_verify(alliance)
        if not alliance.is_hub:
            _site_check(run, alliance)
        elif fault := sites_fault(alliance, run.joint.sites):
            raise ValidationError(fault)
    except Refused as error:
        raise refusal(error) from error


def joint_approve(run: Run) -> None:
    """Sign a run that a second person at this hub or site has approved, in the same transaction as the approval.

    Raises:
        ValidationError: see `joint_check`.
    """
    joint_check(run)
    try:
        if run.alliance.is_hub:  # type: ignore[union-attr]  # it was checked
            _hub_sign(run, run.alliance)  # type: ignore[arg-type]
        else:
            _site_sign(run, run.alliance)  # type: ignore[arg-type]
    except Refused as error:
        raise refusal(error) from error


def sites_fault(alliance: Alliance, names: Iterable[str]) -> str:
    """Return the reason why a hub cannot ask the named sites to take part in a run (empty if it can)."""
    there = {site.name: site for site in alliance.sites.all() if site.takes_part}
    if gone := [name for name in names if name not in there]:
        return _("These sites do not take part: %(sites)s.") % {"sites": ", ".join(gone)}
    if unsigned := [name for name in names if not there[name].is_eligible]:
        text = _("A site's key was replaced, but these sites have not confirmed the new one yet: %(sites)s.")
        return text % {"sites": ", ".join(unsigned)}
    return ""


def renewal_check(alliance: Alliance) -> None:
    """Raise ValidationError at a site that has not confirmed all replaced keys."""
    if alliance.offered:
        raise ValidationError(_("A site's key was replaced. Compare the new key's fingerprint and confirm it first."))


def run_terms(run: Run) -> dict[str, Any]:
    """Return the public data that a hub sends to sites about a run: its parameters and plan."""
    points = None if run.public_dataset is None else points_digest(run.public_dataset)
    return {name: getattr(run, name) for name in COMMON} | {"share": run.share, "points": points, "plan": run.plan}


def hub_plan(joint: JointRun) -> dict[str, Any]:
    """Return the plan of a joint run as sent by its hub."""
    return json.loads(joint.proposal)["plan"]


def _hub_sign(run: Run, alliance: Alliance) -> None:
    joint = run.joint
    joint.proposal = document_text(run_terms(run))
    document = RunDocument(
        alliance=alliance.document.digest(),
        number=run.pk.hex,
        plan=digest_of(joint.proposal),
        mode=joint.mode,  # type: ignore[arg-type]
        participants=tuple(sorted(joint.sites)),
    )
    joint.content = document.content().decode()
    joint.signature = sign(document, known_identity(alliance)).signature.hex()
    joint.save()


def _site_check(run: Run, alliance: Alliance) -> None:
    if run.joint.ended:
        raise ValidationError(_("The hub has ended the run: %(why)s") % {"why": run.joint.ended})
    if run.joint.document.alliance != alliance.document.digest():
        raise ValidationError(
            _("A site's key was replaced after the hub proposed this run, so the hub will end the run.")
        )
    if not form_describes(alliance):
        raise ValidationError(_("The consent form in force does not mention this alliance."))


def _site_sign(run: Run, alliance: Alliance) -> None:
    joint = run.joint
    agreement_make(joint)
    approval = site_of(joint).approval(joint.document)
    joint.approvals |= {
        alliance.own_name: {"content": approval.document.content().decode(), "signature": approval.signature.hex()}
    }
    joint.save()
