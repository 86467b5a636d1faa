"""Counts and lists in sentences."""

from jaxbench.counted import counted, listed


def test_one_of_a_thing_is_singular() -> None:
    assert [counted(n, "pair") for n in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]
    assert [counted(n, "study", "studies") for n in (1, 3)] == ["1 study", "3 studies"]


def test_a_list_ends_with_and() -> None:
    assert [listed("abc"[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
