"""App configuration of the Django project."""

from django.apps import AppConfig
from django.core import checks


class IpateWebConfig(AppConfig):
    """App that provides the commands which start the site and its workers."""

    name = "ipate_web"

    def ready(self) -> None:
        from ipate_web.catalogues import catalogues_check
        from ipate_web.checks import confinement_check, encoding_check, key_check
        from ipate_web.watching import register

        register()
        checks.register(catalogues_check, checks.Tags.translation)
        checks.register(confinement_check, checks.Tags.security, deploy=True)
        checks.register(key_check, checks.Tags.security, deploy=True)
        checks.register(encoding_check, checks.Tags.database)
