"""What staff see, under ``/studies/``."""

from django.urls import path

from training.views import (
    consent_forms,
    datasets,
    invitations,
    ledger,
    members,
    paper,
    policies,
    proposals,
    recruitment,
    runs,
    studies,
)

app_name = "training"
urlpatterns = [
    path("new/", studies.study_new, name="study_new"),
    path("<slug:slug>/", studies.study, name="study"),
    path("<slug:slug>/edit/", studies.study_edit, name="study_edit"),
    path("<slug:slug>/people/", members.members, name="members"),
    path("<slug:slug>/people/<int:pk>/remove/", members.member_remove, name="member_remove"),
    path("<slug:slug>/invitations/", invitations.invitations, name="invitations"),
    path("<slug:slug>/invitations/<int:pk>/revoke/", invitations.invitation_revoked, name="invitation_revoke"),
    path("<slug:slug>/recruitment/", recruitment.recruitment, name="recruitment"),
    path("<slug:slug>/recruitment/paper/", paper.paper_consent, name="paper_consent"),
    path("<slug:slug>/recruitment/paper/list/", paper.paper_list, name="paper_list"),
    path("<slug:slug>/consent-form/", consent_forms.consent_forms, name="consent_forms"),
    path("<slug:slug>/consent-form/new/", consent_forms.consent_form_new, name="consent_form_new"),
    path("<slug:slug>/consent-form/preview/", consent_forms.consent_form_preview, name="consent_form_preview"),
    path("<slug:slug>/consent-form/publish/", consent_forms.consent_form_publish, name="consent_form_publish"),
    path("<slug:slug>/consent-form/<int:version>/", consent_forms.consent_form, name="consent_form"),
    path("<slug:slug>/policies/", policies.policies, name="policies"),
    path("<slug:slug>/policies/new/", policies.policy_new, name="policy_new"),
    path("<slug:slug>/policies/odds/", policies.policy_odds, name="policy_odds"),
    path("<slug:slug>/policies/<int:version>/approve/", policies.policy_approve, name="policy_approve"),
    path("<slug:slug>/datasets/", datasets.datasets, name="datasets"),
    path("<slug:slug>/datasets/<int:pk>/", datasets.dataset, name="dataset"),
    path("<slug:slug>/runs/", runs.runs, name="runs"),
    path("<slug:slug>/runs/new/", proposals.run_new, name="run_new"),
    path("<slug:slug>/runs/<uuid:pk>/", runs.run, name="run"),
    path("<slug:slug>/runs/<uuid:pk>/live/", runs.run_live, name="run_live"),
    path("<slug:slug>/runs/<uuid:pk>/labels/", runs.run_labels, name="run_labels"),
    path("<slug:slug>/runs/<uuid:pk>/model/", runs.run_model, name="run_model"),
    path("<slug:slug>/runs/<uuid:pk>/approve/", proposals.run_approve, name="run_approve"),
    path("<slug:slug>/runs/<uuid:pk>/cancel/", proposals.run_cancel, name="run_cancel"),
    path("<slug:slug>/ledger/", ledger.ledger, name="ledger"),
    path("<slug:slug>/ledger/check/", ledger.ledger_check, name="ledger_check"),
    path("<slug:slug>/ledger/ledger.<slug:kind>", ledger.ledger_export, name="ledger_export"),
    path("<slug:slug>/ledger/<uuid:pk>/report/", ledger.ledger_report, name="ledger_report"),
]
