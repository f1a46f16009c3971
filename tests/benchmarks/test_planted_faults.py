"""The planted faults fit the current code; see :mod:`benchmarks.planted_faults`, which plants them."""

import pytest

from benchmarks.planted_faults import ROOT, Fault, faults


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_a_planted_fault_fits_the_code(fault: Fault) -> None:
    compile(fault.planted(ROOT), fault.file, "exec") if fault.file.endswith(".py") else fault.planted(ROOT)
    assert [name for name in fault.tests if not (ROOT / name.split("::")[0]).exists()] == []


def test_there_are_enough_faults_in_every_area() -> None:
    areas = [fault.area for fault in faults()]
    assert len(areas) >= 40
    assert set(areas) == {"accounting", "engine", "mechanisms", "sites", "consent", "API", "pages", "intake"}
    assert len({fault.name for fault in faults()}) == len(areas)
