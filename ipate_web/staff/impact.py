"""Summary for a data protection impact assessment (GDPR Article 35(7)), from the study's own data.

It describes which data are processed and why, how people are protected, and how much an attacker's guess can improve.
It contains nothing about a single person and no number of people. The controller has to judge whether the remaining
risk is acceptable, with the advice of its data protection officer.
"""

from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from accounting.shares import committed_share
from common.templatetags.moments import moment_text
from consent.documents.typeset import tagged_pdf
from consent.forms import options
from consent.models import Study
from consent.models.recorded import actor_name
from consent.selectors import consent_form_in_force, policies_in_force
from consent.wording.facts import fact_words, study_text
from ipate_web.run_words import percent, trimmed
from ipate_web.staff.report import TEMPLATE as REPORT


@dataclass(frozen=True)
class Section:
    """Part of the summary: paragraphs, and a table if ``columns`` is not empty."""

    heading: str
    paragraphs: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)


def impact_sections(study: Study) -> list[Section]:
    """Return the summary in the reader's language."""
    return [
        _description(study),
        _processing(study),
        _necessity(study),
        _levels(study),
        _risks(study),
        _decisions(study),
    ]


def _description(study: Study) -> Section:
    rows = [[label, text] for label, text in fact_words(study)]
    return Section(_("Processing, data and purpose"), columns=[_("Fact"), _("Information given to people")], rows=rows)


def _processing(study: Study) -> Section:
    message = _(
        "The records stay in this installation. A run asks one public question after another. Each person's answer "
        "is bounded, the answers are added up, and random noise is added before anyone sees the total. The published "
        "model learns only from these totals."
    )
    rows = [
        [
            run.title,
            capfirst(str(run.get_method_display())),
            capfirst(str(run.get_status_display())),
            percent(run.share),
        ]
        for run in study.runs.order_by("created_at")
    ]
    columns = [_("Run"), _("Method"), _("Status"), _("Share of every cap")]
    datasets = [
        _("%(kind)s dataset “%(name)s”") % {"kind": capfirst(str(each.get_kind_display())), "name": each.name}
        for each in study.datasets.filter(removed_at=None).order_by("kind", "name")
    ]
    return Section(_("How it works"), [message, *datasets], columns if rows else [], rows)


def _necessity(study: Study) -> Section:
    return Section(
        _("Necessity and proportionality"),
        [
            _(
                "People are in the study only with their own consent, or that of the person who answers for them. "
                "Saying no is one of four answers, all shown in the same way."
            ),
            _(
                "If a person withdraws, their records are not used for anything new from that moment, and are erased "
                "within a day unless they ask to keep them."
            ),
            _("People can see what is stored about them, download a copy, and read what their records were used for."),
            _(
                "Every change to the information given to people needs a new version of the consent form, which a "
                "second person from the ethics committee publishes."
            ),
        ],
    )


def _levels(study: Study) -> Section:
    policy = policies_in_force(study).last()
    if policy is None:
        return Section(_("Levels and odds"), [_("No ε policy is in force, so people cannot decide yet.")])
    message = _(
        "If both answers are equally likely beforehand, at most this many of 100 guesses can be right, even for "
        "someone who knows everything that is ever released and everything else. δ is %(delta)s."
    )
    rows = [
        [
            capfirst(str(each.label)),
            trimmed(each.epsilon or 0.0),
            str(each.right_guesses),
            str(each.right_record_guesses),
        ]
        for each in options(policy, study.delta)[:3]
    ]
    columns = [_("Level"), "ε", _("Whether a person took part"), _("Which of two records is theirs")]
    shared = _("So far, runs and counts have been granted %(part)s of every person's cap.") % {
        "part": percent(committed_share(study))
    }
    return Section(_("Levels and odds"), [message % {"delta": study.delta}, shared], columns, rows)


def _risks(study: Study) -> Section:
    rows = [
        [
            _("Published results let others infer whether a person took part, or something about their records."),
            _(
                "Noise, and one budget account per person. The level that a person chose limits how often a "
                "guess can be right."
            ),
            _("The odds above, and findings about similar people, which apply whether or not a person takes part."),
        ],
        [
            _("A person with access reads raw records."),
            _("Roles that cannot be combined, a log of every look-up of a person's choice, encrypted backups."),
            _("People who keep the records for the controller can see them."),
        ],
        [
            _("Decisions or costs are changed afterwards."),
            _("Append-only, chained tables that are checked every night; signed checkpoints kept by auditors."),
            _("A person who has both the database and the keys."),
        ],
        [
            _("People are pressured to consent, or do not understand what they consent to."),
            _(
                "Equal answers, check questions, withdrawal at any time without an account, and a form approved by "
                "two people."
            ),
            _("Pressure or information outside this site."),
        ],
        [
            _("Timing and sizes of network messages, and records of relatives, reveal something about a person."),
            _("Before they decide, people read that this is not covered."),
            _("The risk remains."),
        ],
    ]
    return Section(
        _("Risks, safeguards and remaining risks"), columns=[_("Risk"), _("Safeguard"), _("Remaining risk")], rows=rows
    )


def _decisions(study: Study) -> Section:
    rows = []
    form = consent_form_in_force(study)
    if form is not None:
        what = _("Consent form, version %(version)d") % {"version": form.version}
        approved = actor_name(form, "published_by") or "–"
        rows.append(
            [
                what,
                actor_name(form, "proposed_by"),
                approved,
                moment_text(timezone.localtime(form.published_at)),
                _short(form.digest),
            ]
        )
    for policy in policies_in_force(study).select_related("approval"):
        what = _("ε policy, version %(version)d") % {"version": policy.version}
        by = (actor_name(policy, "proposed_by"), actor_name(policy.approval, "approved_by"))
        rows.append([what, *by, moment_text(timezone.localtime(policy.approval.approved_at)), policy.reason])
    columns = [_("Document"), _("Proposed by"), _("Approved by"), _("When"), _("Checksum or reason")]
    return Section(
        _("Who decided"), [] if rows else [_("Nothing has been decided yet.")], columns if rows else [], rows
    )


def _short(digest: str) -> str:
    """Return the beginning of a digest, because all 64 digits do not fit into a table cell."""
    return f"{digest[:16]}…"


def _title(study: Study) -> str:
    return _("Summary for the data protection impact assessment: %(study)s") % {
        "study": study_text(study, "title").text
    }


def _note() -> str:
    return _(
        "Created from the study's own data. This is not an assessment: the controller has to judge whether the risks "
        "are acceptable, with the advice of its data protection officer (GDPR, Article 35)."
    )


def impact_markdown(study: Study) -> str:
    """Return the summary as Markdown."""
    context: dict[str, Any] = {
        "title": _title(study),
        "note": _note(),
        "made": moment_text(timezone.localtime()),
        "sections": [],
    }
    context["sections"] = [
        {
            "heading": section.heading,
            "paragraphs": section.paragraphs,
            "columns": " | ".join(section.columns),
            "rule": " | ".join("---" for _column in section.columns),
            "rows": [" | ".join(_cell(cell) for cell in row) for row in section.rows],
        }
        for section in impact_sections(study)
    ]
    return render_to_string("staff/study/impact.md", context).lstrip()


def _cell(text: str) -> str:
    """Return a cell's text on one line, with vertical bars escaped so that they do not end the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def impact_pdf(study: Study) -> bytes:
    """Return the summary as a tagged PDF."""
    now = timezone.localtime()
    sections: list[dict[str, Any]] = []
    for section in impact_sections(study):
        table = {"caption": section.heading, "columns": section.columns, "widths": [1] * len(section.columns)}
        tables = [{**table, "rows": section.rows}] if section.columns else []
        sections.append({"heading": section.heading, "paragraphs": section.paragraphs, "tables": tables})
    context = {
        "title": _title(study),
        "author": study.controller,
        "date": {"year": now.year, "month": now.month, "day": now.day},
        "lang": (get_language() or settings.LANGUAGE_CODE).split("-")[0],
        "heading": _title(study),
        "facts": [(_("About this summary"), _note()), (_("Created"), moment_text(now))],
        "sections": sections,
    }
    return tagged_pdf(REPORT, context)
