# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Format log lines of our programs so that an error appears once.

oslo.log appends the exception that is being handled to each warning or
error. Our messages already contain it, with its consequence.

If a line cannot be written, as on a full disk, Python prints a traceback.
Here the line itself goes to stderr, which systemd puts into its journal.
"""

import contextlib
import copy
import logging
import sys
from collections.abc import Iterator

from oslo_config import cfg
from oslo_log import formatters

_OURS = __name__.split('.', 1)[0]
_SUMMARY = '%(error_summary)s'
_PLAIN = logging.Formatter('%(levelname)s %(name)s %(message)s')
_FORMATS = ('logging_context_format_string', 'logging_default_format_string')


class Formatter(logging.Formatter):
    """Formats like oslo.log, but appends no exception to our messages.

    An exception that ``LOG.exception`` logs is kept.

    :param formatter: formatter of oslo.log.
    """

    def __init__(self, formatter: formatters.ContextFormatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if record.name.split('.', 1)[0] == _OURS and not record.exc_info:
            # oslo.log appends exceptions above this level only. The line shows
            # the name of the level, which does not change.
            record = copy.copy(record)
            record.levelno = min(record.levelno, logging.INFO)
        text: str = self._formatter.format(record)
        return text


class _NotWritten:
    """Replaces ``handleError`` of a handler: prints the line to stderr.

    :param handler: handler that could not write a record.
    :param program: name of the program.
    """

    def __init__(self, handler: logging.Handler, program: str) -> None:
        self._handler = handler
        self._program = program
        self._usual = handler.handleError

    def __call__(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            # A bug in nova-vhpc: the usual traceback helps to find it.
            self._usual(record)
            return
        # Not oslo.log's formatter, which would append this exception.
        line = _PLAIN.format(record)
        with contextlib.suppress(OSError):
            print(
                f'{self._program}: not in the log '
                f'({error.strerror or error}): {line}',
                file=sys.stderr,
            )


def set_up(conf: cfg.ConfigOpts) -> None:
    """Change all handlers that oslo.log has made.

    A handler keeps its format if the operator's format string says where
    exceptions go, or if ``log_config_append`` uses another formatter than
    oslo.log's.
    """
    ours = not any(_SUMMARY in (conf[name] or '') for name in _FORMATS)
    for handler in _handlers():
        if ours and isinstance(handler.formatter, formatters.ContextFormatter):
            handler.setFormatter(Formatter(handler.formatter))
        if not isinstance(handler.handleError, _NotWritten):
            handler.handleError = _NotWritten(  # type: ignore[method-assign]
                handler, conf.prog
            )


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Restore level, propagation and handlers of all loggers on failure."""
    before = [
        (logger, logger.level, logger.propagate, tuple(logger.handlers))
        for logger in _loggers()
    ]
    try:
        yield
    except BaseException:
        for logger, level, propagate, handlers in before:
            logger.setLevel(level)
            logger.propagate = propagate
            logger.handlers = list(handlers)
        raise


def _handlers() -> Iterator[logging.Handler]:
    """Yield the handlers of all loggers: a file may set more than root's."""
    for logger in _loggers():
        yield from logger.handlers


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for logger in tuple(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger
