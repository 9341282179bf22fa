# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""How our own programs' lines of the log look: what is wrong stands once.

oslo.log adds the exception that is being handled to whatever is logged as a
warning or worse. Ours name it themselves, with what it means. And Python
makes a traceback of each line that cannot be written, as on a disk that is
full: it goes to stderr, which systemd has in its journal, as it is.
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
    """Formats as oslo.log does, but adds no exception to our own messages.

    An exception that is logged on purpose, by ``LOG.exception``, stays.

    :param formatter: oslo.log's.
    """

    def __init__(self, formatter: formatters.ContextFormatter) -> None:
        super().__init__()
        self._formatter = formatter

    def format(self, record: logging.LogRecord) -> str:
        """The line, or lines, of a record."""
        if record.name.split('.', 1)[0] == _OURS and not record.exc_info:
            # oslo.log looks for an exception from this level on only; its
            # name, which is what a line shows, is as it was.
            record = copy.copy(record)
            record.levelno = min(record.levelno, logging.INFO)
        text: str = self._formatter.format(record)
        return text


class _NotWritten:
    """In place of ``handleError`` of a handler: what stderr is told.

    :param program: whose log it is.
    """

    def __init__(self, handler: logging.Handler, program: str) -> None:
        self._handler = handler
        self._program = program
        self._usual = handler.handleError

    def __call__(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            # A fault of ours.
            self._usual(record)
            return
        # oslo.log's formatter would add this very exception.
        line = _PLAIN.format(record)
        with contextlib.suppress(OSError):
            print(
                f'{self._program}: not in the log '
                f'({error.strerror or error}): {line}',
                file=sys.stderr,
            )


def set_up(conf: cfg.ConfigOpts) -> None:
    """Have all handlers of the log, which oslo.log has made, do as we do.

    The format is left alone where it is an operator's that says where
    exceptions go, and where ``log_config_append`` has none of oslo.log's.
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
    """Have all loggers as they were, if what is done to them fails."""
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
    """Of all loggers: a file may give some to others than the root."""
    for logger in _loggers():
        yield from logger.handlers


def _loggers() -> Iterator[logging.Logger]:
    yield logging.getLogger()
    for logger in tuple(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield logger
