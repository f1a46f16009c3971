"""``migrate``, reporting only migrations that :mod:`ipate_web.management.commands.makemigrations` would create."""

from django.core.management.commands import migrate

from ipate_web.management.commands.makemigrations import SchemaAutodetector


class Command(migrate.Command):
    autodetector = SchemaAutodetector
