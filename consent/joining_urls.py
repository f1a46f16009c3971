"""URLs under ``/join/``, for data holders without an account."""

from django.urls import path

from consent.views import joining

urlpatterns = [
    path("", joining.join, name="join"),
    path("leave/", joining.leave, name="leave"),
    path("stay/", joining.stay, name="stay"),
    path("account/", joining.account, name="account"),
    path("closed/", joining.closed, name="closed"),
    path("<str:code>/", joining.open_link, name="open_link"),
]
