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
warning or worse. Ours name it themselves, with what it means.
"""

import copy
import logging
from collections.abc import Iterator

from oslo_config import cfg
from oslo_log import formatters

_OURS = __name__.split('.', 1)[0]
_SUMMARY = '%(error_summary)s'
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


def say_once(conf: cfg.ConfigOpts) -> None:
    """Have the handlers of the log, which is set up, use our formatter.

    Not those of an operator whose format says where exceptions go. Those that
    ``log_config_append`` describes format as oslo.log does only if they say
    so.
    """
    if any(_SUMMARY in (conf[name] or '') for name in _FORMATS):
        return
    for handler in _handlers():
        if isinstance(handler.formatter, formatters.ContextFormatter):
            handler.setFormatter(Formatter(handler.formatter))


def _handlers() -> Iterator[logging.Handler]:
    """Of all loggers: a file may give some to others than the root."""
    yield from logging.getLogger().handlers
    for logger in tuple(logging.Logger.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            yield from logger.handlers
