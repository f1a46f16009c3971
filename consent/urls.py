"""What a data holder sees, under ``/my/``."""

from django.urls import path

from consent.views import decision

app_name = "consent"
urlpatterns = [
    path("", decision.my_studies, name="my_studies"),
    path("<slug:slug>/", decision.study, name="study"),
    path("<slug:slug>/decide/", decision.decide, name="decide"),
    path("<slug:slug>/choice/", decision.choice, name="choice"),
    path("<slug:slug>/withdraw/", decision.withdraw, name="withdraw"),
]
