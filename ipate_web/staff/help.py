"""Links from staff pages to the documentation, and the terms that their pop-ups explain."""

from typing import Final

from django.urls import reverse

from consent.templatetags.elements import has_documents

#: Name of an address → page in the documentation. Other staff pages have `EVERYWHERE`.
SECTIONS: Final = {
    "study_new": "install.html#first-steps-on-a-new-installation",
    "study": "roles.html",
    "study_edit": "install.html#first-steps-on-a-new-installation",
    "changes": "checkpoints.html",
    "members": "roles.html",
    "invitations": "consent.html#invitations",
    "letterhead": "consent.html#letters-on-paper",
    "letters": "consent.html#letters-on-paper",
    "link_new": "consent.html#invitations",
    "recruitment": "consent.html#what-data-stewards-see",
    "paper_consent": "operations.html#decisions-on-paper",
    "paper_list": "operations.html#decisions-on-paper",
    "circumstances": "consent.html#when-someone-else-answers",
    "receipt_check": "consent.html#afterwards",
    "disposals": "rights.html#erasure",
    "study_close": "rights.html#datasets-studies-retention",
    "consent_forms": "consent.html#what-the-committee-does",
    "consent_form_new": "consent.html#what-the-committee-does",
    "consent_form_facts": "rights.html#gdpr-point-by-point",
    "consent_form_publish": "consent.html#what-the-committee-does",
    "committee": "consent.html#what-the-committee-does",
    "policies": "consent.html#when-a-promise-changes",
    "policy_new": "consent.html#understanding",
    "policy_approve": "consent.html#when-a-promise-changes",
    "datasets": "importing.html#import-in-the-browser",
    "import_new": "importing.html#import-in-the-browser",
    "import": "importing.html#declare-the-columns",
    "encoders": "encoders.html#encoders",
    "dataset": "importing.html#declare-the-columns",
    "dataset_remove": "rights.html#datasets-studies-retention",
    "head_counts": "gaussian-accounts.html#conditions",
    "runs": "choosing-a-method.html",
    "run_new": "choosing-a-method.html",
    "run_edit": "choosing-a-method.html",
    "run_approve": "evaluation.html#forecasts",
    "run_compare": "evaluation.html#measures",
    "run": "evaluation.html",
    "run_tab": "evaluation.html",
    "run_student_new": "students.html#versions",
    "run_student_publish": "evaluation.html#publication",
    "run_student_withdraw": "rights.html#withdrawn-models",
    "run_result_withdraw": "rights.html#withdrawn-models",
    "models": "evaluation.html",
    "model": "evaluation.html#measures",
    "model_threshold": "evaluation.html#threshold",
    "model_stage": "api.html#threshold-and-stage",
    "ledger": "life-of-a-run.html#storage-of-charges",
    "ledger_check": "checkpoints.html#what-an-auditor-can-check",
    "webhooks": "webhooks.html",
}
EVERYWHERE: Final = "roles.html"
#: Name of an address → keys of the terms in `consent.wording.glossary` that its page explains.
WORDS: Final = {
    "study": "policy cap share heads",
    "policies": "policy epsilon times",
    "policy_new": "policy epsilon times",
    "policy_approve": "policy epsilon times",
    "committee": "policy times",
    "datasets": "public records pseudonym",
    "import_new": "public pseudonym",
    "head_counts": "heads noise",
    "runs": "run plan student",
    "run_new": "run plan public student",
    "run_approve": "plan share cap",
    "run": "released noise share cap student",
    "run_tab": "released noise share cap student",
    "models": "student released",
    "ledger": "register released cap share",
    "recruitment": "withdrawing receipt pseudonym",
    "invitations": "pseudonym",
}


def help_address(name: str) -> str:
    """Return the address of the help for the page with this name; empty if the documentation is not built."""
    if not has_documents():
        return ""
    return reverse("documents") + SECTIONS.get(name, EVERYWHERE)
