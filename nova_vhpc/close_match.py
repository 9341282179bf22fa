# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Find the word that was probably meant by a misspelt one. Pure."""

import difflib
from collections.abc import Iterable

CUTOFF = 0.6
"""Least similarity, from 0 to 1, as in Python's own suggestions."""


def find(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that is most like a misspelt one.

    :param word: the word that was written.
    :param known: the words that could have been meant.
    :returns: None if no known word is like it.
    """
    by_lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), by_lower, 1, CUTOFF)
    return by_lower[near[0]] if near else None


def hint(word: str, known: Iterable[str], form: str = '{}') -> str:
    """Return the end of a message about a misspelt word.

    :param word: the word that was written.
    :param known: the words that could have been meant.
    :param form: how to write a known word, with {} in its place.
    :returns: ``; did you mean ...?``, or nothing if no known word is like it.
    """
    near = find(word, known)
    return f'; did you mean {form.format(near)}?' if near else ''
