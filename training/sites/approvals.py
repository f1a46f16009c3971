"""The moment at which a joint run is approved: the hub signs what it proposes, a site its approval."""

import json
from collections.abc import Iterable
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _

from learning.sites.documents import JointRun as RunDocument
from learning.sites.documents import Refused, sign
from training.models import Alliance, JointRun, Run
from training.sites.alliances import form_tells, refusal
from training.sites.documents import alliance_verify, digest_of, document_text, points_digest
from training.sites.keys import agreement_make, known_identity, site_of

#: Fields of a run that sites take over from the hub as they are.
COMMON = (
    *("title", "purpose", "method", "variant", "choices", "student_learner", "student_parameters"),
    *("batch_size", "wanted_labels"),
)


def joint_approve(run: Run) -> None:
    """Sign what the second person of this side has approved, in their transaction.

    Raises:
        ValidationError: Of a site: the consent form in force does not tell people of the alliance, or the site has
            left it. Of a hub: a site has left.
    """
    alliance = run.alliance
    assert alliance is not None, "a joint run is one of an alliance"
    if alliance.left_at is not None:
        raise ValidationError(_("The alliance has ended here."))
    renewal_check(alliance)
    try:
        alliance_verify(alliance)
        if alliance.is_hub:
            _hub_sign(run, alliance)
        else:
            _site_sign(run, alliance)
    except Refused as error:
        raise refusal(error) from error


def sites_fault(alliance: Alliance, names: Iterable[str]) -> str:
    """What keeps a hub from asking sites to take part in a run; empty if nothing does."""
    there = {site.name: site for site in alliance.sites.all() if site.takes_part}
    if gone := [name for name in names if name not in there]:
        return _("These sites do not take part: %(sites)s.") % {"sites": ", ".join(gone)}
    if unsigned := [name for name in names if not there[name].is_eligible]:
        text = _("The key of a site was replaced, and these sites have not confirmed it yet: %(sites)s.")
        return text % {"sites": ", ".join(unsigned)}
    return ""


def renewal_check(alliance: Alliance) -> None:
    """Check at a site that it has confirmed every key that was replaced. Raises ValidationError."""
    if alliance.offered:
        raise ValidationError(_("The key of a site was replaced. Compare its fingerprint, and confirm it first."))


def run_terms(run: Run) -> dict[str, Any]:
    """What a hub tells sites of a run: its parameters and plan, all of it public."""
    points = None if run.public_dataset is None else points_digest(run.public_dataset)
    return {name: getattr(run, name) for name in COMMON} | {"share": run.share, "points": points, "plan": run.plan}


def hub_plan(joint: JointRun) -> dict[str, Any]:
    """The plan of a joint run as its hub told it."""
    return json.loads(joint.proposal)["plan"]


def _hub_sign(run: Run, alliance: Alliance) -> None:
    joint = run.joint
    if fault := sites_fault(alliance, joint.sites):
        raise ValidationError(fault)
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


def _site_sign(run: Run, alliance: Alliance) -> None:
    if run.joint.ended:
        raise ValidationError(_("The hub has ended the run: %(why)s") % {"why": run.joint.ended})
    if run.joint.document.alliance != alliance.document.digest():
        raise ValidationError(_("The key of a site was replaced since the hub proposed this run. It ends it."))
    if not form_tells(alliance):
        raise ValidationError(_("The consent form in force does not tell people of this alliance."))
    joint = run.joint
    agreement_make(joint)
    approval = site_of(joint).approval(joint.document)
    joint.approvals |= {
        alliance.own_name: {
            "content": approval.document.content().decode(),
            "signature": approval.signature.hex(),
        }
    }
    joint.save()
