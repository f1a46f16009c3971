"""The anchor table: its page is what the kept numbers say."""

from benchmarks.anchor import DOCUMENT, document, lines


def test_the_page_is_written_from_the_kept_numbers() -> None:
    assert DOCUMENT.read_text() == document(), "run python -m benchmarks.anchor"


def test_every_row_has_numbers_and_names_its_command() -> None:
    for line in lines():
        assert any(line.numbers), line.data
        assert "benchmarks." in line.measured, line.data
