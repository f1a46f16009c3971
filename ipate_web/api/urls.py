"""URLs of the API under ``/api/``: version 1, its documentation, and the page for tokens."""

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from ipate_web.api import (
    base,
    comparisons,
    costs,
    datasets,
    encoders,
    imports,
    keys,
    labels,
    models,
    parts,
    plans,
    runs,
    sites,
    students,
    studies,
    tables,
    waiting,
    webhooks,
)
from ipate_web.tokens import views as tokens

version_1 = [
    path("", base.Root.as_view(), name="root"),
    path("studies", studies.StudyList.as_view(), name="studies"),
    path("studies/<slug:slug>", studies.StudyDetail.as_view(), name="study"),
    path("studies/<slug:slug>/datasets", datasets.StudyDatasets.as_view(), name="study-datasets"),
    path("studies/<slug:slug>/imports", imports.StudyImports.as_view(), name="study-imports"),
    path("studies/<slug:slug>/imports/<uuid:pk>", imports.StudyImport.as_view(), name="study-import"),
    path("studies/<slug:slug>/imports/<uuid:pk>/store", imports.StudyImportStore.as_view(), name="study-import-store"),
    path("studies/<slug:slug>/consents", imports.StudyConsents.as_view(), name="study-consents"),
    path("studies/<slug:slug>/head-counts", imports.StudyHeadCounts.as_view(), name="study-head-counts"),
    path("studies/<slug:slug>/encoders", encoders.StudyEncoders.as_view(), name="study-encoders"),
    path("studies/<slug:slug>/webhooks", webhooks.StudyWebhooks.as_view(), name="study-webhooks"),
    path(
        "studies/<slug:slug>/webhooks/deliveries",
        webhooks.StudyWebhookDeliveries.as_view(),
        name="study-webhook-deliveries",
    ),
    path("studies/<slug:slug>/webhooks/<int:pk>", webhooks.StudyWebhook.as_view(), name="study-webhook"),
    path("studies/<slug:slug>/webhooks/<int:pk>/test", webhooks.StudyWebhookTest.as_view(), name="study-webhook-test"),
    path("waiting", waiting.WaitingList.as_view(), name="waiting"),
    path("learners", parts.LearnerList.as_view(), name="learners"),
    path("students", parts.StudentList.as_view(), name="students"),
    path("aggregators", parts.AggregatorList.as_view(), name="aggregators"),
    path("methods", parts.MethodList.as_view(), name="methods"),
    path("representations", parts.RepresentationList.as_view(), name="representations"),
    path("runs", runs.RunList.as_view(), name="runs"),
    path("runs/plan", plans.RunPlan.as_view(), name="run-plan"),
    path("runs/compare", comparisons.RunComparison.as_view(), name="run-comparison"),
    path("runs/<uuid:pk>", runs.RunDetail.as_view(), name="run"),
    path("runs/<uuid:pk>/plan", plans.RunPlanned.as_view(), name="run-planned"),
    path("runs/<uuid:pk>/approve", runs.RunApprove.as_view(), name="run-approve"),
    path("runs/<uuid:pk>/withdraw", runs.RunWithdraw.as_view(), name="run-withdraw"),
    path("runs/<uuid:pk>/cancel", runs.RunCancel.as_view(), name="run-cancel"),
    path("runs/<uuid:pk>/labels", labels.RunLabels.as_view(), name="run-labels"),
    path("runs/<uuid:pk>/costs", costs.RunCosts.as_view(), name="run-costs"),
    path("runs/<uuid:pk>/table", tables.RunTable.as_view(), name="run-table"),
    path("runs/<uuid:pk>/rows", tables.RunRows.as_view(), name="run-rows"),
    path("runs/<uuid:pk>/table/withdraw", tables.RunTableWithdraw.as_view(), name="run-table-withdraw"),
    path("runs/<uuid:pk>/students", students.RunStudents.as_view(), name="run-students"),
    path(
        "runs/<uuid:pk>/students/<int:version>/publish",
        students.RunStudentPublish.as_view(),
        name="run-student-publish",
    ),
    path(
        "runs/<uuid:pk>/students/<int:version>/withdraw",
        students.RunStudentWithdraw.as_view(),
        name="run-student-withdraw",
    ),
    path("models", models.ModelList.as_view(), name="models"),
    path("models/<uuid:pk>", models.ModelDetail.as_view(), name="model"),
    path("models/<uuid:pk>/file", models.ModelNative.as_view(), name="model-file"),
    path("models/<uuid:pk>/onnx", models.ModelOnnx.as_view(), name="model-onnx"),
    path("models/<uuid:pk>/statement", models.ModelStatement.as_view(), name="model-statement"),
    path("models/<uuid:pk>/threshold", models.ModelThreshold.as_view(), name="model-threshold"),
    path("models/<uuid:pk>/stage", models.ModelStage.as_view(), name="model-stage"),
    path("keys", keys.KeyList.as_view(), name="keys"),
    path("models/<uuid:pk>/predict", models.ModelPredict.as_view(), name="model-predict"),
    *(
        path(f"alliances/<uuid:key>/{address}", view, name=f"site-{view.__name__}")
        for address, view in (
            ("name", sites.name),
            ("register", sites.register),
            ("exchange", sites.exchange),
            ("points", sites.points),
            ("runs/<str:run>/answers/<int:number>", sites.answer),
            ("runs/<str:run>/totals/<int:number>", sites.total),
            ("runs/<str:run>/model/<str:file>", sites.model),
        )
    ),
    re_path("", base.NotFoundView.as_view()),
]

urlpatterns = [
    path("v1/", include((version_1, "api"))),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(template_name="api/docs.html"), name="api-docs"),
    path("tokens", tokens.tokens, name="api-tokens"),
    path("tokens/<str:key>/revoke", tokens.revoke, name="api-token-revoke"),
]
