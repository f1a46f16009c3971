"""Base of a study's generated methods, which propose runs by keyword arguments."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Callable, cast

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    from ipate_client.documents import Dataset, Plan, Run
    from ipate_client.site import Site

    P = ParamSpec("P")


class Proposing:
    """Base class of a study's proposals."""

    if TYPE_CHECKING:
        slug: str

        @property
        def site(self) -> Site: ...

        @property
        def datasets(self) -> list[Dataset]: ...

    def _proposal(self, method: str, given: dict[str, Any], choices: tuple[str, ...], kinds: str) -> dict[str, Any]:
        """Return the document of a proposal.

        Args:
            method: Name of the method.
            given: Arguments by name; arguments that are None are left out.
            choices: Names of the arguments that are choices of the method.
            kinds: Kinds of datasets that the proposal needs. If one is not given, the study's only dataset of that kind
                is used.
        """
        found = {name: value for name, value in given.items() if name != "self" and value is not None}
        sent: dict[str, Any] = {"study": self.slug, "method": method}
        for name, value in found.items():
            if name not in choices:
                sent[name] = getattr(value, "id", value) if name.endswith("_dataset") else value
        for kind in kinds.split():
            if f"{kind}_dataset" not in sent:
                ids = [each.id for each in self.datasets if each.kind == kind]
                if len(ids) > 1:
                    raise LookupError(f"The study “{self.slug}” has {len(ids)} {kind} datasets. Pass {kind}_dataset.")
                sent.update({f"{kind}_dataset": number for number in ids})
        return {**sent, "choices": {name: found[name] for name in choices if name in found}}


def proposing(described: Callable[Concatenate[Any, P], dict[str, Any]]) -> Callable[Concatenate[Any, P], Run]:
    """Return a method that saves a draft of the run described by the document from ``described``."""

    @wraps(described)
    def propose(self: Any, *args: P.args, **kwargs: P.kwargs) -> Run:
        run: Run = self.site.propose(**described(self, *args, **kwargs))
        return run

    return cast("Callable[Concatenate[Any, P], Run]", propose)


def planning(described: Callable[Concatenate[Any, P], dict[str, Any]]) -> Callable[Concatenate[Any, P], Plan]:
    """Return a method that plans the run described by the document from ``described``, without saving anything."""

    @wraps(described)
    def plan(self: Any, *args: P.args, **kwargs: P.kwargs) -> Plan:
        planned: Plan = self.site.plan(**described(self, *args, **kwargs))
        return planned

    return cast("Callable[Concatenate[Any, P], Plan]", plan)
