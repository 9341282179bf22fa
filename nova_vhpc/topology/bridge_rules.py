# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The operator's rules for bridges: parse and match them."""

import dataclasses
import fnmatch
from collections.abc import Iterable

from nova_vhpc.topology import model

ALLOWED = (
    'allowed is NAME[:shared|separate][:slots=N][:physnet=NAME]'
    '[:mbps=N][:nic=NAME]...'
)


@dataclasses.dataclass(frozen=True, slots=True)
class BridgeRule:
    """One entry of the option ``bridges``.

    :ivar pattern: name of a bridge, with the wildcards of fnmatch.
    :ivar kind: shared, or separate for one guest.
    :ivar slots: number of guests per uplink; None for the default.
    :ivar physnet: Neutron physical network of the bridge, or None.
    :ivar mbps: link speed in Mbit/s; None for the driver's.
    :ivar nics: uplinks that sysfs does not show as ports of the bridge.
    """

    pattern: str
    kind: model.BridgeKind = model.BridgeKind.SHARED
    slots: int | None = None
    physnet: str | None = None
    mbps: int | None = None
    nics: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether the rule names one bridge, which must then exist."""
        return not any(sign in self.pattern for sign in '*?[')


def parse_rule(text: str) -> BridgeRule:
    """Parse one entry of the option ``bridges``.

    :raises ValueError: the entry is wrong; the message has the entry, the
        fault and the syntax.
    """
    pattern, *words = (word.strip() for word in text.strip().split(':'))
    if not pattern:
        raise _wrong(text, 'the name of the bridge is missing')
    kind = model.BridgeKind.SHARED
    numbers: dict[str, int] = {}
    physnet: str | None = None
    nics: list[str] = []
    for word in words:
        key, equals, value = word.partition('=')
        if not equals:
            try:
                kind = model.BridgeKind(word)
            except ValueError:
                raise _wrong(text, f"'{word}' is no kind of bridge") from None
        elif key in ('slots', 'mbps'):
            if not value.isdecimal() or not 1 <= int(value) <= 10**7:
                raise _wrong(text, f"{key} '{value}' is not an integer >= 1")
            numbers[key] = int(value)
        elif key in ('physnet', 'nic') and value:
            if key == 'physnet':
                physnet = value
            else:
                nics.append(value)
        else:
            raise _wrong(text, f"'{word}' is not understood")
    slots = numbers.get('slots')
    if kind is model.BridgeKind.SEPARATE:
        if slots not in (None, 1):
            raise _wrong(text, 'a separate bridge has one slot')
        if len(nics) > 1:
            raise _wrong(text, 'a separate bridge has one uplink')
    return BridgeRule(
        pattern, kind, slots, physnet, numbers.get('mbps'), tuple(nics)
    )


def parse_rules(texts: Iterable[str]) -> tuple[BridgeRule, ...]:
    """Parse the option ``bridges``.

    :raises ValueError: an entry is wrong or given twice.
    """
    rules: list[BridgeRule] = []
    for text in texts:
        rule = parse_rule(text)
        if any(rule.pattern == other.pattern for other in rules):
            raise _wrong(text, f"'{rule.pattern}' is given twice")
        rules.append(rule)
    return tuple(rules)


def find_rule(rules: Iterable[BridgeRule], bridge: str) -> BridgeRule | None:
    """Return the first rule that matches a bridge's name, if any."""
    for rule in rules:
        if fnmatch.fnmatchcase(bridge, rule.pattern):
            return rule
    return None


def _wrong(text: str, what: str) -> ValueError:
    return ValueError(f"'{text}': {what}; {ALLOWED}")
