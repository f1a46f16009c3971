"""What the pages call shares, learners, aggregators and their parameters."""

from decimal import Decimal

from django import template
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from training.forms.runs import OFFERED_AGGREGATORS
from training.learners import LEARNERS

register = template.Library()


@register.filter
def percent(share: float | None) -> str:
    """0.9338 as "93.4 %"; a dash for what is unknown."""
    if share is None:
        return "–"
    return _("%(number)s %%") % {"number": number_format(round(100 * share, 1), decimal_pos=1)}


@register.filter
def trimmed(number: float) -> str:
    """A number with up to three decimals, none that say nothing: 0.5, not 0.500."""
    return str(number_format(Decimal(f"{number:.3f}".rstrip("0").rstrip("."))))


@register.filter
def learner_label(name: str) -> str:
    return _(LEARNERS[name].label) if name in LEARNERS else name


@register.filter
def aggregator_label(name: str) -> str:
    return OFFERED_AGGREGATORS.get(name, name)


@register.filter
def symbol(parameter: str) -> str:
    """A parameter of an aggregator as the papers write it."""
    return {"sigma": "σ", "sigma_threshold": "σ_T", "threshold": "T", "gamma": "γ"}.get(parameter, parameter)
