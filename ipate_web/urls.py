"""Root URL configuration: the apps' URLs, home page, sign-in, language, health."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from consent.views.glossary import glossary
from ipate_web.forms import SignInForm
from ipate_web.health import healthz
from ipate_web.views import home

urlpatterns = [
    path("", home, name="home"),
    path(
        "sign-in/",
        LoginView.as_view(authentication_form=SignInForm, redirect_authenticated_user=True),
        name="login",
    ),
    path("sign-out/", LogoutView.as_view(), name="logout"),
    path("language/", include("django.conf.urls.i18n")),
    # What holders see
    path("my/", include("consent.urls")),
    path("join/", include("consent.joining_urls")),
    path("glossary/", glossary, name="glossary"),
    # What staff see
    path("studies/", include("ipate_web.staff.urls")),
    # What programs see
    path("api/", include("ipate_web.api.urls")),
    # What keeps the site running
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
]
