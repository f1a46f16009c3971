"""URLs of the data holder's pages under ``/my/`` and, for holders without an account, under ``/join/``."""

from django.urls import include, path
from django.views.decorators.http import require_safe
from django.views.generic import RedirectView

from consent.views import decision, joining, records

#: Pages of one study, after its short name.
study_patterns = [
    path("", decision.study, name="study"),
    path("check/", decision.check, name="check"),
    path("check-answer/", decision.check_answer, name="check_answer"),
    path("decide/", decision.decide, name="decide"),
    path("choice/", decision.choice, name="choice"),
    path("withdraw/", decision.withdraw, name="withdraw"),
    path("erase/", decision.erase, name="erase"),
    path("receipts/<int:n>/", records.receipt, name="receipt"),
    path("receipts/<int:n>/text/", records.receipt_text, name="receipt_text"),
    path("receipts/<int:n>/receipt.pdf", records.receipt_as_pdf, name="receipt_pdf"),
    path("receipts/<int:n>/receipt.json", records.receipt_as_json, name="receipt_json"),
    path("receipts/<int:n>/proof.json", records.receipt_proof, name="receipt_proof"),
    path("uses/", records.uses, name="uses"),
    path("learned/", require_safe(RedirectView.as_view(pattern_name="consent:uses")), name="learned"),  # in old emails
    path("later/", joining.later, name="later"),
    path("told/", joining.contact_way, name="contact_way"),
    path("export/", records.export, name="export"),
]

#: Pages for people with an invitation, without an account. Their names have no namespace.
joining_patterns = [
    path("", joining.join, name="join"),
    path("leave/", joining.leave, name="leave"),
    path("stay/", joining.stay, name="stay"),
    path("account/", joining.account, name="account"),
    path("closed/", joining.closed, name="closed"),
    path("<str:code>/", joining.open_link, name="open_link"),
]

app_name = "consent"
urlpatterns = [path("", decision.my_studies, name="my_studies"), path("<slug:slug>/", include(study_patterns))]
