"""Codes with check letters: what they notice, by trying every mistake."""

import itertools

from consent.codes import GROUP, LETTERS, check_letter, code_faults, code_in_groups, code_new, code_normalise, code_of

CODE = code_of(0x2F6A1B09C37D5E84F1A26B3C09D7E58F143, 7)
GROUPS = code_in_groups(CODE).split()


def wrong_groups(text: str) -> list[int]:
    faults = code_faults(text, 7)
    return [place for place in range(1, 8) if any(fault.startswith(f"Group {place} ") for fault in faults)]


def test_a_code_is_its_random_bits_and_a_letter_for_each_group() -> None:
    codes = {code_new(7) for _ in range(200)}
    assert len(codes) == 200 and code_of(0, 7) != code_of(1, 7)
    for code in codes:
        assert len(code) == 35 and set(code) <= set(LETTERS)
        assert not any(code_faults(typed, 7) for typed in (code, code_in_groups(code), code_in_groups(code, "-")))


def test_letters_that_look_alike_are_the_same() -> None:
    assert code_normalise(code_in_groups(CODE, " - ").lower().replace("0", "o").replace("1", "l")) == CODE


def test_every_single_wrong_letter_is_noticed_in_its_group() -> None:
    for place in range(35):
        for letter in set(LETTERS) - {CODE[place]}:
            assert wrong_groups(CODE[:place] + letter + CODE[place + 1 :]) == [place // GROUP + 1]


def test_letters_that_changed_places_are_noticed() -> None:
    for start in range(0, 35, GROUP):
        for one, other in itertools.combinations(range(start, start + GROUP), 2):
            letters = list(CODE)
            letters[one], letters[other] = letters[other], letters[one]
            assert letters == list(CODE) or wrong_groups("".join(letters)) == [start // GROUP + 1]
    for one, other in itertools.combinations(range(7), 2):
        swapped = list(GROUPS)
        swapped[one], swapped[other] = swapped[other], swapped[one]
        assert wrong_groups(" ".join(swapped)) == [one + 1, other + 1]


def test_a_letter_that_is_missing_is_said_with_its_group() -> None:
    short = [*GROUPS[:3], GROUPS[3][1:], *GROUPS[4:]]
    assert code_faults(" ".join(short), 7) == [f"Group 4 ({short[3]}) must have 5 letters or digits."]
    # Without spaces it is the first group that does not fit.
    length, first = code_faults("".join(short), 7)
    assert length.endswith("You typed 34 letters.") and first.startswith("Group 4 ")
    assert code_faults(" ".join(GROUPS[:6]), 7)[0].endswith("You typed 30 letters.")
    assert code_faults("U" + CODE[1:], 7) == [f"Group 1 (U{CODE[1:5]}) has a character that no code has."]


def test_a_check_letter_follows_from_the_others_by_polynomials_over_two() -> None:
    def times_x(value: int) -> int:
        return (value << 1) ^ (0b100101 if value & 16 else 0)

    for letters, place in itertools.product(("0000", "Z7K1", "8QRA"), (1, 7)):
        total = place
        for power, letter in enumerate(letters, 1):
            value = LETTERS.index(letter)
            for _ in range(power):
                value = times_x(value)
            total ^= value
        assert check_letter(letters, place) == LETTERS[total]
