"""Root URL configuration: the apps' URLs, home page, sign-in, language, health."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

from consent.urls import joining_patterns
from consent.views.joining import address
from consent.wording.glossary import glossary
from ipate_web import views
from ipate_web.accounts.views import health
from ipate_web.api.base import outside
from ipate_web.health import healthz, metrics, readyz
from ipate_web.staff import runs
from ipate_web.staff.accounts import staff_accounts
from ipate_web.staff.search import search

# The admin's own sign-in page would not ask for a second factor.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]

handler400 = "ipate_web.middleware.bad_request"
handler404 = "ipate_web.middleware.not_found"
handler500 = "ipate_web.middleware.server_error"

urlpatterns = [
    path("", views.home, name="home"),
    path("", include("ipate_web.accounts.urls")),
    path("language/", include("django.conf.urls.i18n")),
    # Pages for holders
    path("my/", include("consent.urls")),
    path("join/", include(joining_patterns)),
    path("address/<str:token>/", address, name="address"),
    path("glossary/", glossary, name="glossary"),
    path("privacy/", views.privacy, name="privacy"),
    path("accessibility/", views.accessibility, name="accessibility"),
    path("logo", views.logo, name="logo"),
    path("docs/", views.documents, name="documents"),
    path("docs/<path:path>", views.documents, name="document"),
    # Pages for staff
    path("studies/", include("ipate_web.staff.urls")),
    path("accounts/", staff_accounts, name="staff_accounts"),
    path("search/", search, name="search"),
    path("queue/", runs.queue, name="queue"),
    path("health/", health, name="health"),
    path("queue/live/", runs.queue_live, name="queue_live"),
    # URLs for programs
    path("api", outside),
    path("api/", include("ipate_web.api.urls")),
    # Operation of the site
    path("admin/", admin.site.urls),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
]
