"""Signed checkpoints on pages."""

from django import template
from django.conf import settings

from consent.models import Checkpoint

register = template.Library()


@register.simple_tag
def checkpoint_keys() -> list[str]:
    """Public keys with which signed checkpoints are checked: the present one first."""
    return settings.CHECKPOINT_KEYS


@register.simple_tag
def last_checkpoint() -> Checkpoint | None:
    """The last signed checkpoint of the installation."""
    return Checkpoint.objects.last()
