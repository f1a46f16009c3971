"""Account URLs: the django-allauth views that the site uses, under the names that allauth looks up."""

from allauth.account import views as allauth_views
from allauth.socialaccount import views as social_views
from django.contrib.auth.views import LogoutView
from django.urls import include, path, re_path

from ipate_web.accounts import views

urlpatterns = [
    path("sign-in/", allauth_views.login, name="account_login"),
    path("sign-out/", LogoutView.as_view(), name="account_logout"),
    path("account/", views.overview, name="account_overview"),
    path("account/inactive/", allauth_views.account_inactive, name="account_inactive"),
    path("account/check/", allauth_views.reauthenticate, name="account_reauthenticate"),
    path("account/addresses/", allauth_views.email, name="account_email"),
    path("account/addresses/confirm/<str:key>/", views.confirm_email, name="account_confirm_email"),
    path("account/password/", allauth_views.password_change, name="account_change_password"),
    path("account/password/set/", allauth_views.password_set, name="account_set_password"),
    path("account/password/forgotten/", allauth_views.password_reset, name="account_reset_password"),
    path("account/password/forgotten/sent/", allauth_views.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^account/password/new/(?P<uidb36>[0-9A-Za-z]+)-(?P<key>.+)/$",  # the key can contain hyphens
        allauth_views.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path(
        "account/password/new/done/",
        allauth_views.password_reset_from_key_done,
        name="account_reset_password_from_key_done",
    ),
    path("account/second-factor/", include("allauth.mfa.urls")),
    path("account/sign-on/", social_views.connections, name="socialaccount_connections"),
    path("account/sign-on/cancelled/", social_views.login_cancelled, name="socialaccount_login_cancelled"),
    path("account/sign-on/closed/", social_views.signup, name="socialaccount_signup"),
    path("account/oidc/<str:provider_id>/login/", views.sign_on, name="openid_connect_login"),
    path("account/oidc/<str:provider_id>/login/callback/", views.sign_on_done, name="openid_connect_callback"),
    path("api/tokens", views.api_tokens, name="api-tokens"),
    path("api/tokens/<str:key>/revoke", views.api_token_revoke, name="api-token-revoke"),
    path("accounts/new/", views.staff_account_new, name="staff_account_new"),
    path("accounts/<int:pk>/close/", views.staff_account_close, name="staff_account_close"),
    path("accounts/<int:pk>/invite/", views.staff_account_invite, name="staff_account_invite"),
    path("accounts/<int:pk>/administrator/", views.administrator, name="administrator"),
]
