# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Errors that the agent's parts raise to its service.

And what is said of answers that programs cannot read.
"""

from nova_vhpc import version

UNREADABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
)
"""What the reader of an agent's answer raises if the agent is of another
version, or the answer was damaged on its way."""


class AgentError(Exception):
    """Base class; the text says what is wrong, where, and what to do."""


class ConfigError(AgentError):
    """A wrong option; the text names it, its value and what is allowed."""


def one_line(error: Exception) -> str:
    """Return the text of an exception in one line for the log; never empty."""
    return ' '.join(str(error).split()) or repr(error)


def unreadable(error: Exception) -> str:
    """Return what to say of an agent's answer that cannot be read.

    :param error: one of :data:`UNREADABLE`.
    """
    return (
        'its answer is not that of nova-vhpc-agent '
        f'{version.version_string()} ({type(error).__name__}: {error}); is it '
        'of another version?'
    )
