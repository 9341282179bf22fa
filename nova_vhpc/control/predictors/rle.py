# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Run-length encoding (RLE) predictor, the one that the paper chose."""

from nova_vhpc.control.predictors import base

INDEX_BITS = 8
TAG_BITS = 16
MAX_RUN = (1 << 16) - 1

_MASK_32 = (1 << 32) - 1
_STATE_FACTOR = 2_654_435_761  # Knuth's multiplicative hash: 2**32 / phi
_RUN_FACTOR = 2_246_822_519  # xxHash's second prime: odd, well mixed


class RlePredictor:
    """RLE (I/O-perception paper, section III.A, after Sherwood et al.).

    The table is indexed with a hash of the state and of its run length, the
    number of times it has occurred in a row: the lower bits select the
    entry, the higher bits are its tag. If the entry has this tag, its value
    is predicted; otherwise the last state. The table is updated (1) when
    the state changes, with a new entry, and (2) when the tag matched,
    because "the observed run length may have potentially changed".

    :param index_bits: binary logarithm of the number of entries, at least 1.
    :param tag_bits: number of bits of a tag, at least 1.
    :raises ValueError: a number of bits is below 1, or both together exceed
        the 32 bits of the hash.
    """

    __slots__ = (
        '_entry',
        '_index_bits',
        '_run',
        '_state',
        '_tag',
        '_tag_mask',
        '_tags',
        '_values',
    )

    def __init__(
        self, index_bits: int = INDEX_BITS, tag_bits: int = TAG_BITS
    ) -> None:
        if index_bits < 1 or tag_bits < 1 or index_bits + tag_bits > 32:
            raise ValueError(
                'index_bits and tag_bits must be at least 1 and together at '
                f'most 32, not {index_bits} and {tag_bits}'
            )
        self._index_bits = index_bits
        self._tag_mask = (1 << tag_bits) - 1
        # No tag is -1, so an empty entry never matches.
        self._tags = [-1] * (1 << index_bits)
        self._values = [base.IDLE_STATE] * (1 << index_bits)
        self._state: int | None = None
        self._run = 0
        self._entry = 0
        self._tag = 0

    def observe(self, state: int, events: float) -> None:
        """Update the entry of the run so far, then look up the new one."""
        state = base.clean_state(state)
        if state == self._state:
            if self._tags[self._entry] == self._tag:
                self._values[self._entry] = state
            self._run = min(self._run + 1, MAX_RUN)
        else:
            if self._state is not None:
                self._tags[self._entry] = self._tag
                self._values[self._entry] = state
            self._state = state
            self._run = 1
        code = (state * _STATE_FACTOR + self._run * _RUN_FACTOR) & _MASK_32
        code ^= code >> 15
        self._entry = code & ((1 << self._index_bits) - 1)
        self._tag = (code >> self._index_bits) & self._tag_mask

    def predict(self) -> int:
        """Return the entry's value if its tag matches, or the last state."""
        if self._state is None:
            return base.IDLE_STATE
        if self._tags[self._entry] == self._tag:
            return self._values[self._entry]
        return self._state

    @property
    def state_bytes(self) -> int:
        """See :class:`~.base.Predictor`."""
        return base.deep_bytes(self)
