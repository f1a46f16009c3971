"""Settings from environment variables (docs/operations.md). By default, everything runs on one machine, in ``var/``."""

import os
import secrets
from contextlib import suppress
from email.utils import formataddr
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from csp.constants import NONE, SELF
from django.urls import reverse
from django.utils.translation import gettext_lazy as _
from environ import Env

from common import __version__
from ipate_web import environment as env

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = Path(env.read("IPATE_VAR_DIR", env.TEXT, default=str(BASE_DIR / "var"))).resolve()
VAR_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)


def _generated_secret_key() -> str:
    """Return the secret key of a local installation, generated once and readable only by its owner."""
    path = VAR_DIR / "secret_key"
    if not path.exists():
        draft = path.with_name(f"secret_key.{os.getpid()}")
        with open(draft, "w", opener=partial(os.open, mode=0o600)) as file:
            file.write(secrets.token_urlsafe(50))
        # Linking fails if another process got there first, and never exposes a half-written key.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return path.read_text()


# --- Address of the site and allowed hosts --------------------------------------------------------------------------
SITE_URL = env.read("IPATE_SITE_URL", env.SITE, default="http://127.0.0.1:8000")
_site = urlsplit(SITE_URL)
HTTPS = _site.scheme == "https"
#: Whether a proxy in front of the site sets X-Forwarded-Proto and adds the client to X-Forwarded-For.
BEHIND_PROXY = env.read("IPATE_BEHIND_PROXY", env.YES_OR_NO, default=False)
DEBUG = env.read("IPATE_DEBUG", env.YES_OR_NO, default=False)
SECRET_KEY = env.read_key("IPATE_SECRET_KEY") or _generated_secret_key()
SECRET_KEY_FALLBACKS = env.read("IPATE_SECRET_KEY_FALLBACKS", env.LIST, default=[])
# Keys for one purpose each (common.keys). If one is missing, it is derived from SECRET_KEY.
SIGNING_KEY = env.read_key("IPATE_SIGNING_KEY")
SIGNING_KEY_FALLBACKS = env.read("IPATE_SIGNING_KEY_FALLBACKS", env.LIST, default=[])
FACTOR_KEY = env.read_key("IPATE_FACTOR_KEY")
FACTOR_KEY_FALLBACKS = env.read("IPATE_FACTOR_KEY_FALLBACKS", env.LIST, default=[])
RECORDS_KEY = env.read_key("IPATE_RECORDS_KEY")
RECORDS_KEY_FALLBACKS = env.read("IPATE_RECORDS_KEY_FALLBACKS", env.LIST, default=[])
ALLOWED_HOSTS = env.read(
    "IPATE_ALLOWED_HOSTS", env.LIST, default=[_site.hostname or "127.0.0.1", "localhost", "127.0.0.1", "[::1]"]
)
CSRF_TRUSTED_ORIGINS = [SITE_URL] if HTTPS else []

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "csp",
    "rest_framework",
    "knox",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "common",
    "consent",
    "accounting",
    "training",
    "ipate_web",
    "ipate_web.accounts",
    "ipate_web.staff",
    "ipate_web.tokens",
]

MIDDLEWARE = [
    "ipate_web.health.BeforeMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_permissions_policy.PermissionsPolicyMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "ipate_web.middleware.reader_zone",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "ipate_web.accounts.adapters.idle_staff_signed_out",
    "ipate_web.accounts.adapters.SecondFactorMiddleware",
    "ipate_web.middleware.TooManyTriesMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "ipate_web.health.AfterMiddleware",
    "ipate_web.repeats.RepeatsMiddleware",
]

ROOT_URLCONF = "ipate_web.urls"
# Links to the pages of objects, for apps that must not import the site.
ABSOLUTE_URL_OVERRIDES = {
    "training.run": lambda run: reverse("staff:run", args=[run.study.slug, run.pk]),
    "consent.webhookendpoint": lambda endpoint: reverse("staff:webhooks", args=[endpoint.study.slug]),
}
WSGI_APPLICATION = "ipate_web.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            # Tags and filters available in every template without loading them.
            "builtins": [
                "django.templatetags.i18n",
                "django.templatetags.static",
                "common.templatetags.components",
                "consent.templatetags.elements",
                "common.templatetags.moments",
                "ipate_web.run_words",
            ],
        },
    }
]

# --- State: database, files, broker ---------------------------------------------------------------------------------
DATABASES = {
    "default": env.read(
        "DATABASE_URL", env.DATABASE, default=Env.db_url_config(f"sqlite:///{VAR_DIR / 'ipate.sqlite3'}")
    )
}
# Django's backends, extended to write the journal's entries before each commit.
_vendor = DATABASES["default"]["ENGINE"].rpartition(".")[2]
DATABASES["default"]["ENGINE"] = f"common.databases.{_vendor}"
if _vendor == "sqlite3":
    # An immediate transaction is SQLite's only lock: it replaces SELECT … FOR UPDATE (rule 3 of the design). Not even a
    # power failure may undo a charge whose labels have been read (rule 2), so every commit is synchronised.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON;",
    }
else:
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"]["CONN_MAX_AGE"] = 60
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# Cache of the counts for the API's limits, and of the number of registered holders in a large study.
CACHES = {
    "default": Env.cache_url_config(env.read("IPATE_CACHE_URL", env.CACHE, default="locmemcache://")),
    # Cache of page parts for the {% cache %} tag. It is separate from the other cache, so that it cannot evict counts
    # of requests.
    "template_fragments": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "LOCATION": "template_fragments",
        "OPTIONS": {"MAX_ENTRIES": 2000},
    },
}

# Without its cache the site is slower and counts no requests, but must still respond.
DJANGO_REDIS_IGNORE_EXCEPTIONS = DJANGO_REDIS_LOG_IGNORED_EXCEPTIONS = True
if "redis" in CACHES["default"]["BACKEND"]:
    CACHES["default"].setdefault("OPTIONS", {}).update({"SOCKET_CONNECT_TIMEOUT": 1, "SOCKET_TIMEOUT": 1})

#: Folder of the journal, which records the progress of every study's chains outside the database. Never restore it
#: along with the database (docs/backup.md).
JOURNAL_DIR = env.read("IPATE_JOURNAL_DIR", env.TEXT, default=str(VAR_DIR / "journal"))
#: Public keys for encrypting backups, and the number of days for which a backup is kept.
BACKUP_RECIPIENTS = env.read("IPATE_BACKUP_RECIPIENT", env.RECIPIENTS, default=[])
BACKUP_DAYS = env.read("IPATE_BACKUP_DAYS", env.COUNT, default=35)
PRIVATE_DIR = VAR_DIR / "private"
MODELS_DIR = VAR_DIR / "models"
KEYS_DIR = VAR_DIR / "keys"
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(VAR_DIR / "media")},
    },
    # Storage of private rows and teachers' predictions, which is encrypted and never served.
    "private": {
        "BACKEND": "common.sealed_storage.SealedStorage",
        "OPTIONS": {
            "backend": env.read(
                "IPATE_PRIVATE_STORAGE", env.TEXT, default="django.core.files.storage.FileSystemStorage"
            ),
            "options": env.read(
                "IPATE_PRIVATE_STORAGE_OPTIONS",
                env.OPTIONS,
                default={
                    "location": str(PRIVATE_DIR),
                    "file_permissions_mode": 0o600,
                    "directory_permissions_mode": 0o700,
                },
            ),
        },
    },
    # Storage of the keys of people's records (common.keyrings), with backups separate from those of the records.
    "keys": {
        "BACKEND": "common.sealed_storage.SealedStorage",
        "OPTIONS": {
            "backend": env.read("IPATE_KEYS_STORAGE", env.TEXT, default="django.core.files.storage.FileSystemStorage"),
            "options": env.read(
                "IPATE_KEYS_STORAGE_OPTIONS",
                env.OPTIONS,
                default={
                    "location": str(KEYS_DIR),
                    "file_permissions_mode": 0o600,
                    "directory_permissions_mode": 0o700,
                },
            ),
        },
    },
    # Storage of student models, which are published only through the API and its permissions.
    "models": {
        "BACKEND": env.read("IPATE_MODELS_STORAGE", env.TEXT, default="django.core.files.storage.FileSystemStorage"),
        "OPTIONS": env.read("IPATE_MODELS_STORAGE_OPTIONS", env.OPTIONS, default={"location": str(MODELS_DIR)}),
    },
    # Second location of signed checkpoints, to which the database's administrators should have no write access.
    "checkpoints": {
        "BACKEND": env.read(
            "IPATE_CHECKPOINT_STORAGE", env.TEXT, default="django.core.files.storage.FileSystemStorage"
        ),
        "OPTIONS": env.read(
            "IPATE_CHECKPOINT_STORAGE_OPTIONS", env.OPTIONS, default={"location": str(VAR_DIR / "checkpoints")}
        ),
    },
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"},
}

#: Public keys for signed checkpoints: the current key and earlier keys. Without keys, no checkpoints are made.
CHECKPOINT_KEYS = env.read("IPATE_CHECKPOINT_KEYS", env.NOTE_KEYS, default=[])
#: File with the private key, only for the process that signs. The site refuses to start if it can read this file
#: (ipate_web.wsgi).
CHECKPOINT_KEY_FILE = env.read("IPATE_CHECKPOINT_KEY_FILE", env.TEXT, default="")

BROKER_URL = env.read("IPATE_BROKER_URL", env.BROKER, default="filesystem://")
CELERY_BROKER_URL = BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# Reconnect forever, because a worker that gives up has to be restarted by a person.
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_TASK_TIME_LIMIT = env.read("IPATE_TASK_TIME_LIMIT", env.SECONDS, default=12 * 3600)
# The sweep restarts with its worker, so nothing needs to be stored on disk.
CELERY_BEAT_SCHEDULER = "ipate_web.celery:SteadyScheduler"
if BROKER_URL.startswith("filesystem"):
    _queue = VAR_DIR / "queue"
    for _folder in ("messages", "control"):
        (_queue / _folder).mkdir(parents=True, exist_ok=True, mode=0o700)
    CELERY_BROKER_TRANSPORT = "ipate_web.celery:FileTransport"
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_queue / "messages"),
        "data_folder_out": str(_queue / "messages"),
        "control_folder": str(_queue / "control"),
        "polling_interval": 0.2,
    }
else:
    # Longer than the longest task, because with late acknowledgement Redis would otherwise give a running task to
    # another worker.
    CELERY_BROKER_TRANSPORT = "ipate_web.celery:RedisTransport"
    CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": CELERY_TASK_TIME_LIMIT + 3600}

# --- The life of a run ----------------------------------------------------------------------------------------------
#: Seconds without a heartbeat after which work is considered dead and taken over.
HEARTBEAT_TIMEOUT = env.read("IPATE_HEARTBEAT_TIMEOUT", env.POSITIVE, default=30.0)
#: Interval at which the sweep looks for dead work, in seconds.
SWEEP_INTERVAL = env.read("IPATE_SWEEP_INTERVAL", env.POSITIVE, default=10.0)
#: Seconds between a site's requests to its hub for new messages; seconds for which a worker keeps asking during a run
#: before it does other work; and seconds without contact with a site after which a question ends.
SITES_INTERVAL = env.read("IPATE_SITES_INTERVAL", env.POSITIVE, default=60.0)
SITES_WAIT = env.read("IPATE_SITES_WAIT", env.POSITIVE, default=10.0)
SITES_PATIENCE = env.read("IPATE_SITES_PATIENCE", env.POSITIVE, default=900.0)
#: Seconds without contact between a site and the hub after which the operators of both are notified.
SITES_SILENCE = env.read("IPATE_SITES_SILENCE", env.POSITIVE, default=300.0)
CELERY_BEAT_SCHEDULE = {
    name: {
        "task": task,
        "schedule": interval,
        # Tasks expire instead of piling up if there is no worker or the load is heavy. Clocks of hosts may differ by
        # the heartbeat time limit.
        "options": {"expires": max(interval, HEARTBEAT_TIMEOUT)},
    }
    for name, task, interval in (
        ("sweep runs", "training.tasks.runs_sweep", SWEEP_INTERVAL),
        ("sweep throttle", "common.tasks.throttle_sweep", 3600.0),
        ("sweep requests", "common.tasks.requests_sweep", 3600.0),
        ("send reminders", "consent.tasks.reminders_send", 3600.0),
        ("sweep addresses", "consent.tasks.addresses_sweep", 3600.0),
        ("publish corrections", "consent.tasks.corrections_publish", 3600.0),
        ("tell of overdue answers", "consent.tasks.overdue_mails_send", 3600.0),
        ("hand over", "consent.tasks.handovers_record", 3600.0),
        ("deliver mails", "consent.tasks.mails_deliver", 60.0),
        ("deliver webhooks", "consent.tasks.webhooks_deliver", 60.0),
        ("erase what is due", "training.tasks.records_due_erase", 900.0),
        # Checked every hour; done once a year in each study.
        ("tell of a year", "training.tasks.notify_yearly", 3600.0),
        ("ask hubs", "training.tasks.alliances_contact", SITES_INTERVAL),
        ("ask former hubs", "training.tasks.former_hubs_ask", 3600.0),
        # Checked every hour; done once a night.
        ("verify studies", "training.tasks.studies_verify", 3600.0),
        # Due once a day, but checked every hour, because Beat does not store when it last ran.
        ("make checkpoints", "consent.tasks.checkpoints_make", 3600.0),
        ("watch", "ipate_web.tasks.watch", 300.0),
        ("sweep accounts", "accounting.tasks.accounts_sweep", 3600.0),
    )
}
#: The largest ε that a policy may promise to anyone.
EPSILON_CAP = env.read("IPATE_EPSILON_CAP", env.POSITIVE, default=10.0)
#: Largest charge to one person's account by all studies together, in μ²; None for no common limit. 1.8 allows at most
#: 75 right guesses in 100, as for a level called low ("Several studies" in docs/gaussian-accounts.md).
PERSON_CEILING = env.read("IPATE_PERSON_CEILING", env.POSITIVE_OR_NONE, default=1.8)
#: Largest number of records of one person in a private dataset, which bounds a run's memory and time per person.
MOST_RECORDS = env.read("IPATE_MOST_RECORDS", env.COUNT, default=10_000)
#: Memory in MB and processor time in seconds for the process that reads an uploaded file.
READER_MEMORY = env.read("IPATE_READER_MEMORY", env.COUNT, default=4000)
READER_SECONDS = env.read("IPATE_READER_SECONDS", env.COUNT, default=1800)
#: Number of plans computed at the same time on this machine. Half of the site's processes stay free for other requests.
PLANS_AT_ONCE = env.read(
    "IPATE_PLANS_AT_ONCE", env.COUNT, default=max(1, env.read("WEB_CONCURRENCY", env.COUNT, default=4) // 2)
)
#: Minimum number of test points for a model to be published automatically; None: every model is published.
LEAST_TEST_POINTS = env.read("IPATE_LEAST_TEST_POINTS", env.COUNT_OR_NONE, default=100)
#: Folder of real datasets (docs/importing.md). If empty, only the digits that scikit-learn ships are
#: available.
DATA_DIR = env.read("IPATE_DATA_DIR", env.TEXT, default="")

# --- People ---------------------------------------------------------------------------------------------------------
AUTHENTICATION_BACKENDS = ["common.sign_in.ThrottledBackend", "consent.permissions.StudyRoleBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
#: Failed sign-ins allowed within SIGN_IN_WAIT seconds: for one name from one address; for one name; from one address.
SIGN_IN_TRIES = env.read("IPATE_SIGN_IN_TRIES", env.COUNT, default=5)
SIGN_IN_TRIES_NAME = env.read("IPATE_SIGN_IN_TRIES_NAME", env.COUNT, default=20)
SIGN_IN_TRIES_ADDRESS = env.read("IPATE_SIGN_IN_TRIES_ADDRESS", env.COUNT, default=50)
SIGN_IN_WAIT = env.read("IPATE_SIGN_IN_WAIT", env.SECONDS, default=900)
#: Wrong invitation codes allowed from a network address within INVITATION_WAIT seconds.
INVITATION_TRIES = env.read("IPATE_INVITATION_TRIES", env.COUNT, default=20)
INVITATION_WAIT = env.read("IPATE_INVITATION_WAIT", env.SECONDS, default=600)
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "home"
#: Whether staff (users who have a role, administer the installation or may open the admin) must have a second factor.
STAFF_SECOND_FACTOR = env.read("IPATE_STAFF_SECOND_FACTOR", env.YES_OR_NO, default=False)
#: Minutes without a request after which staff are signed out; data holders stay signed in.
STAFF_IDLE_MINUTES = env.read("IPATE_STAFF_IDLE_MINUTES", env.COUNT, default=60)

ACCOUNT_ADAPTER = "ipate_web.accounts.adapters.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "username", "password1*", "password2*"]
ACCOUNT_SESSION_REMEMBER = True
ACCOUNT_LOGIN_ON_PASSWORD_RESET = True  # through a link in an email; a second factor is still required
# Signed-in users confirm addresses; until then, a holder's link stays valid (consent.services.invitations).
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_UNKNOWN_ACCOUNTS = False
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
ACCOUNT_MAX_EMAIL_ADDRESSES = 5
ACCOUNT_REAUTHENTICATION_TIMEOUT = 900
# Our own limits are counted in the database, so that all processes share them (ipate_web.accounts.forms,
# common.sign_in).
ACCOUNT_RATE_LIMITS = False
ACCOUNT_FORMS = {
    "login": "ipate_web.accounts.forms.SignInForm",
    "add_email": "ipate_web.accounts.forms.AddressForm",
    "change_password": "ipate_web.accounts.forms.PasswordChangeForm",
    "set_password": "ipate_web.accounts.forms.PasswordSetForm",
    "reset_password": "ipate_web.accounts.forms.PasswordResetForm",
    "reset_password_from_key": "ipate_web.accounts.forms.PasswordFromMailForm",
    "reauthenticate": "ipate_web.accounts.forms.PasswordAgainForm",
}
MFA_ADAPTER = "ipate_web.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
# People cannot sign up with someone else's address, and users with an unconfirmed address still need a second factor.
MFA_ALLOW_UNVERIFIED_EMAIL = True
MFA_TOTP_ISSUER = f"iPATE ({_site.hostname})"
MFA_WEBAUTHN_ALLOW_INSECURE_ORIGIN = not HTTPS
MFA_FORMS = {
    "authenticate": "ipate_web.accounts.forms.CodeForm",
    "reauthenticate": "ipate_web.accounts.forms.CodeAgainForm",
    "activate_totp": "ipate_web.accounts.forms.AppForm",
    "add_webauthn": "ipate_web.accounts.forms.KeyForm",
    "edit_webauthn": "ipate_web.accounts.forms.KeyNameForm",
}

# Single sign-on by OpenID Connect, for existing accounts found by a confirmed address.
OIDC_SERVER = env.read("IPATE_OIDC_SERVER", env.HTTP_URL, default="")
_oidc = {
    "name": env.read("IPATE_OIDC_NAME", env.TEXT, default=urlsplit(OIDC_SERVER).hostname or ""),
    "client_id": env.read("IPATE_OIDC_CLIENT_ID", env.TEXT, default=""),
    "secret": env.read("IPATE_OIDC_CLIENT_SECRET", env.TEXT, default=""),
}
env.all_or_none({"IPATE_OIDC_SERVER": OIDC_SERVER, "IPATE_OIDC_CLIENT_ID": _oidc["client_id"]})
SOCIALACCOUNT_ADAPTER = "ipate_web.accounts.adapters.SignOnAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_STORE_TOKENS = False
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [{"provider_id": "sso", "settings": {"server_url": OIDC_SERVER}, **_oidc}] if OIDC_SERVER else [],
    }
}

# --- Description of the installation ---------------------------------------------------------------------------------
SITE_NAME = env.read("IPATE_SITE_NAME", env.TEXT, default="iPATE")
SITE_LOGO = env.read("IPATE_SITE_LOGO", env.file_of({".svg", ".png"}), default="")
#: Name, postal address and contact of the site's operator.
SITE_OPERATOR = env.read("IPATE_SITE_OPERATOR", env.TEXT, default="")
SITE_CONTACT = env.read("IPATE_SITE_CONTACT", env.MAIL_ADDRESS, default="")
#: Folder with the installation's own privacy notice and accessibility statement, such as privacy.en.md.
SITE_PAGES = env.read("IPATE_SITE_PAGES", env.TEXT, default="")

# --- Mail -----------------------------------------------------------------------------------------------------------
# Without a mail server, emails are written to files that only the site's own user can read, because some contain links
# that give access to an account.
_mail = env.read("IPATE_MAIL", env.MAIL, default={"BACKEND": "filebased", "FILE_PATH": str(VAR_DIR / "mail")})
EMAIL_BACKEND = f"django.core.mail.backends.{_mail['BACKEND']}.EmailBackend"
EMAIL_FILE_PATH = _mail.get("FILE_PATH")
EMAIL_HOST, EMAIL_PORT = _mail.get("HOST", "localhost"), _mail.get("PORT", 25)
EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = _mail.get("HOST_USER", ""), _mail.get("HOST_PASSWORD", "")
EMAIL_USE_TLS, EMAIL_USE_SSL = _mail.get("USE_TLS", False), _mail.get("USE_SSL", False)
EMAIL_TIMEOUT = 30
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.read(
    "IPATE_MAIL_FROM", env.MAIL_ADDRESS, default=formataddr((SITE_NAME, f"noreply@{_site.hostname}"))
)
if EMAIL_FILE_PATH:
    Path(EMAIL_FILE_PATH).mkdir(parents=True, exist_ok=True, mode=0o700)

# --- Webhooks ---------------------------------------------------------------------------------------------------------
#: URL for the sign of life of each healthy part ({name}); if empty, none is sent.
SIGN_OF_LIFE_URL = env.read("IPATE_SIGN_OF_LIFE_URL", env.SIGN_OF_LIFE, default="")
#: Networks that webhooks may reach although they are not public.
WEBHOOK_NETWORKS = env.read("IPATE_WEBHOOK_NETWORKS", env.NETWORKS, default=[])

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("de", _("German"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "ipate_web.formats"
# Keep the chosen language when the browser closes.
LANGUAGE_COOKIE_AGE = 365 * 24 * 3600
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SECURE = HTTPS
LANGUAGE_COOKIE_SAMESITE = "Lax"
TIME_ZONE = env.read("IPATE_TIME_ZONE", env.ZONE, default="UTC")
USE_TZ = True

# --- Static files, cookies, security headers --------------------------------------------------------------------------
STATIC_URL = "static/"
STATIC_ROOT = VAR_DIR / "static"
STATICFILES_DIRS = [BASE_DIR / "static"]
#: The documentation site built by `make docs`, next to the code that it describes.
DOCUMENTS = BASE_DIR / "site"

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SECURE_SSL_REDIRECT = HTTPS
# The first are requested on the machine itself, bypassing the proxy. The API itself refuses plain HTTP, and URLs of
# alliances contain ids.
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$", r"^api/v1/(?!alliances/)"]
SECURE_HSTS_SECONDS = 365 * 24 * 3600 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if BEHIND_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
# Passkeys for signing in, and copying a token; the site uses no other feature of the device.
PERMISSIONS_POLICY: dict[str, list[str] | str] = {
    **{name: [] for name in ("browsing-topics", "camera", "display-capture", "geolocation", "microphone")},
    **{name: [] for name in ("payment", "usb")},
    "publickey-credentials-get": "self",
    "publickey-credentials-create": "self",
}
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "img-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [SELF],
        # Browsers check the redirect to the identity provider against the form that starts it.
        "form-action": [
            SELF,
            *([f"{urlsplit(OIDC_SERVER).scheme}://{urlsplit(OIDC_SERVER).netloc}"] if OIDC_SERVER else []),
        ],
        "frame-ancestors": [NONE],
    }
}

# Largest API request; it is held in memory.
DATA_UPLOAD_MAX_MEMORY_SIZE = 16 * 2**20

# --- REST API -------------------------------------------------------------------------------------------------------
_RATES = {
    "user": env.read("IPATE_API_RATE", env.RATE, default="600/min"),
    "anon": env.read("IPATE_API_ANONYMOUS_RATE", env.RATE, default="60/min"),
    "predict": env.read("IPATE_API_PREDICT_RATE", env.RATE, default="60/min"),
}
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "knox.auth.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "ipate_web.api.requests.WithinScope",
        "ipate_web.api.requests.SecondFactor",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["ipate_web.api.requests.LimitedJSONParser"],
    "DEFAULT_PAGINATION_CLASS": "ipate_web.api.requests.Pages",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "ipate_web.api.problems.problem_response",
    "DEFAULT_THROTTLE_CLASSES": [
        "rest_framework.throttling.UserRateThrottle",
        "rest_framework.throttling.AnonRateThrottle",
    ],
    "DEFAULT_THROTTLE_RATES": _RATES,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "iPATE",
    "DESCRIPTION": (
        "Propose runs and follow them; fetch released labels, model cards, student models and predictions. "
        "Create a token on the page “API tokens” and send it with every request: `Authorization: Bearer ipate_…`. "
        "What the API returns depends on your role in each study; the response is 404 for anything you may not see.\n\n"
        f"Request limits: {_RATES['user']} for each user, {_RATES['anon']} for each IP address without a token, "
        f"and {_RATES['predict']} for predictions. The `RateLimit` header of every response shows how many requests "
        "you have left. Above the limit, the response is 429 with a `Retry-After` header.\n\n"
        "Versions: fields and operations can be added to version 1 at any time. Before one is removed, it is marked as "
        "deprecated here for at least a year. During this time, responses have the headers `Deprecation` (RFC 9745) "
        "and `Sunset` (RFC 8594), which give the date of its removal.\n\n"
        "Errors are problem documents (RFC 9457), whose `type` is one of those listed at /docs/errors.html."
    ),
    "SERVERS": [{"url": SITE_URL, "description": "This site"}],
    "VERSION": __version__,
    "TAGS": [{"name": name} for name in ("root", "studies", "runs", "labels and models", "webhooks")],
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_SETTINGS": {"deepLinking": True, "defaultModelsExpandDepth": 0},
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "DatasetKind": "training.models.Dataset.Kind",
        "RunStatus": "training.models.Run.Status",
        "ProtectionLevel": "consent.models.Level",
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "ipate_web.api.parts.choices_in_schema",
        "ipate_web.api.schema.choices_in_words",
        "ipate_web.api.problems.problems_in_schema",
        "ipate_web.api.schema.examples_in_schema",
    ],
}
KNOX_TOKEN_MODEL = "tokens.ApiToken"  # noqa: S105, the name of a model
# Its migrations would create the table that our model replaces, and then PostgreSQL could not empty the users' table.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {"TOKEN_TTL": None, "TOKEN_PREFIX": "ipate_", "AUTH_HEADER_PREFIX": "Bearer"}

# --- Metrics ----------------------------------------------------------------------------------------------------------
#: Token that requests for /metrics must send; if empty, there are no metrics.
METRICS_TOKEN = env.read("IPATE_METRICS_TOKEN", env.TOKEN, default="")

# --- Logs: one JSON object per line, with the run concerned ---------------------------------------------------------
LOG_FORMAT = env.read("IPATE_LOG_FORMAT", env.LOG_FORMATS, default="json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"run": {"()": "common.logging.RunFilter"}},
    "formatters": {
        "json": {
            "()": "pythonjsonlogger.json.JsonFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s %(run)s",
            "rename_fields": {"asctime": "time", "levelname": "level", "name": "logger"},
        },
        "plain": {"format": "%(asctime)s %(levelname)-7s %(name)s [%(run)s] %(message)s"},
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT, "filters": ["run"]}},
    "root": {"handlers": ["console"], "level": env.read("IPATE_LOG_LEVEL", env.LOG_LEVEL, default="INFO")},
    "loggers": {
        "django.server": {"handlers": ["console"], "level": "INFO", "propagate": False},
        "httpx": {"level": "WARNING"},  # otherwise, every request from a site to its hub would be logged
        "kombu.connection": {"level": "ERROR"},  # otherwise, kombu warns that the file transport has no host
    },
}
