"""URLs of the data holder's pages, under ``/my/``."""

from django.urls import path

from consent.views import addresses, decision, records

app_name = "consent"
urlpatterns = [
    path("", decision.my_studies, name="my_studies"),
    path("<slug:slug>/", decision.study, name="study"),
    path("<slug:slug>/check/", decision.check, name="check"),
    path("<slug:slug>/check-answer/", decision.check_answer, name="check_answer"),
    path("<slug:slug>/decide/", decision.decide, name="decide"),
    path("<slug:slug>/choice/", decision.choice, name="choice"),
    path("<slug:slug>/withdraw/", decision.withdraw, name="withdraw"),
    path("<slug:slug>/erase/", decision.erase, name="erase"),
    path("<slug:slug>/receipts/<int:n>/", records.receipt, name="receipt"),
    path("<slug:slug>/receipts/<int:n>/text/", records.receipt_text, name="receipt_text"),
    path("<slug:slug>/receipts/<int:n>/receipt.pdf", records.receipt_as_pdf, name="receipt_pdf"),
    path("<slug:slug>/receipts/<int:n>/receipt.json", records.receipt_as_json, name="receipt_json"),
    path("<slug:slug>/receipts/<int:n>/proof.json", records.receipt_proof, name="receipt_proof"),
    path("<slug:slug>/uses/", records.uses, name="uses"),
    path("<slug:slug>/learned/", records.results, name="results"),
    path("<slug:slug>/later/", addresses.later, name="later"),
    path("<slug:slug>/told/", addresses.told, name="told"),
    path("<slug:slug>/export/", records.export, name="export"),
]
