"""What a data holder sees, under ``/my/``."""

from django.urls import path

from consent import views

app_name = "consent"
urlpatterns = [
    path("", views.my_studies, name="my_studies"),
    path("<slug:slug>/", views.study, name="study"),
    path("<slug:slug>/decide/", views.decide, name="decide"),
    path("<slug:slug>/choice/", views.choice, name="choice"),
    path("<slug:slug>/withdraw/", views.withdraw, name="withdraw"),
]
