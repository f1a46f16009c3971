"""``migrate``, which misses no migrations but those of :mod:`ipate_web.management.commands.makemigrations`."""

from django.core.management.commands import migrate

from ipate_web.management.commands.makemigrations import SchemaAutodetector


class Command(migrate.Command):
    autodetector = SchemaAutodetector
