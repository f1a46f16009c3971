"""Tables that can be reproduced, by their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from benchmarks.reproduce.results import Case
from benchmarks.reproduce.tables import figures, holders, idpsgd, ipate, pate2017, pate2018, skew, small

PATE_2017 = "Papernot et al., Semi-supervised knowledge transfer for deep learning from private training data (2017)"
PATE_2018 = "Papernot et al., Scalable private learning with PATE (2018)"
IPATE = "Boenisch et al., Individualized PATE (2023)"
IDPSGD = "Boenisch et al., Have it your way: individualized privacy assignment for DP-SGD (2023)"
NOBODY = "Not published before"
THESIS = "C. Mühl, Personalizing private aggregation of teacher ensembles, master's thesis (2021)"


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    cases: function that yields its measurements, with fewer and shorter ones if called with True. derived: whether they
    are read from another benchmark's results, and therefore not stored again.
    """

    name: str
    title: str
    source: str
    cases: Callable[[bool], Iterable[Case]]
    derived: bool = False


def _thesis(number: str, data: str, what: str) -> Table:
    name = data.lower()
    cases = partial(ipate.thesis, f"table{number}_{name}_{what}", name, what)
    return Table(f"thesis-{number}", f"{data}, ε = 1 and a larger ε: {what}", THESIS, cases)


_TABLES = (
    Table("pate2017-fig4", "LNMax on MNIST", PATE_2017, pate2017.figure4),
    Table("pate2017-adult", "LNMax on Adult, 500 queries to 250 random forests", PATE_2017, pate2017.adult),
    Table("pate2017-diabetes", "LNMax on Diabetes, by patient and by record", PATE_2017, pate2017.diabetes),
    Table("pate2018-table", "Confident-GNMax on the published votes", PATE_2018, pate2018.cases),
    Table("ipate-table1", "MNIST at ε = 1, 2, 3", IPATE, ipate.table1),
    Table("ipate-table5", "MNIST, ln 2 with ln 4, 8, 16: labels", IPATE, ipate.table5),
    Table("ipate-table6", "Adult, larger ε for one class: students", IPATE, skew.table6),
    Table("ipate-table7", "Adult, ln 2 with ln 4, 8, 16: labels", IPATE, ipate.table7),
    Table("ipate-table8", "MNIST, ln 2 with ln 4, 8, 16: students", IPATE, ipate.table8),
    Table("ipate-table9", "Adult, ln 2 with ln 4, 8, 16: students", IPATE, ipate.table9),
    Table("ipate-table10a", "Adult, larger ε for one class: teachers", IPATE, skew.table10a),
    Table("ipate-table10b", "Adult, larger ε for one class: votes", IPATE, skew.table10b),
    Table("ipate-table11", "Adult, larger ε for one class: labels", IPATE, skew.table11),
    Table("figure1", "Cost of each group by number of labels", IPATE, figures.figure1),
    Table("figure3", "Ratio of costs against ratio of sensitivities", IPATE, figures.figure3),
    _thesis("6.4", "MNIST", "labels"),
    _thesis("6.5", "Adult", "labels"),
    _thesis("6.6", "MNIST", "student"),
    _thesis("6.7", "Adult", "student"),
    Table("small-groups", "Groups too small for a teacher of their own, MNIST", NOBODY, small.cases),
    Table("idpsgd-table2", "MNIST at ε = 1, 2, 3", IDPSGD, idpsgd.table2, derived=True),
    Table("idpsgd-table3", "MNIST at ε = 0.3, fewer steps", IDPSGD, idpsgd.table3, derived=True),
    Table("idpsgd-table5", "Noise multipliers of Tables 4 and 5", IDPSGD, idpsgd.table5),
    Table("idpsgd-table6", "Parameters for ε = 1, 2, 3", IDPSGD, idpsgd.table6),
    Table("idpsgd-table7", "CIFAR-10 at ε = 1, 2, 3, a smaller network", IDPSGD, idpsgd.table7, derived=True),
    Table("idpsgd-table8", "CIFAR-10, one class at ε = 3 or 1, all others at 2", IDPSGD, idpsgd.table8, derived=True),
    Table("idpsgd-table9", "MNIST, promises by class", IDPSGD, idpsgd.table9, derived=True),
    Table("idpsgd-table10", "Figure 2 and Table 10: attacks at ε = 10 and 20", IDPSGD, idpsgd.table10, True),
    Table("idpsgd-table11", "MNIST at ε = 1, 2, 3: students of Individualized PATE", IDPSGD, idpsgd.table11),
    Table("idpsgd-table12", "MNIST at ε = 1, 2, 3: baselines", IDPSGD, idpsgd.table12, derived=True),
)
_BESIDE = Table(
    "every-holder",
    "Every holder votes, at the promises of the other tables",
    "Method neighbours; nobody has published it",
    partial(holders.cases, [table.cases for table in _TABLES]),
)
TABLES = {table.name: table for table in (*_TABLES, _BESIDE)}
