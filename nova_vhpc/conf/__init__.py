# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Options of nova-vhpc, one module per group.

Role
    Define every option, with type, range and help, and check them when a
    program starts.
Doors
    Each group's module has ``register_opts(conf)`` and ``list_opts()``;
    :mod:`.opts` lists all. :class:`Options` reads arguments and files,
    :func:`check` reads every option once, :func:`set_up_log` opens the log.
Invariants
    The caller passes the ``ConfigOpts``: nova-scheduler its own global one,
    the agent a private one. Names of groups and options stay. Messages name
    option and file, never a secret.
Tests
    ``nova_vhpc/tests/unit/conf``.
"""

import argparse
import contextlib
import io
import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from oslo_config import cfg
from oslo_log import log

from nova_vhpc import close_match, version
from nova_vhpc.conf import log_format

LOG = logging.getLogger(__name__)

DEFAULT = 'DEFAULT'
"""Name, in configuration files, of the group of options without a group."""


_PLACE = re.compile(
    r"LocationInfo\(location=<Locations\.(\w+): [^>]*>, detail='([^']*)'\)"
)


_ATTRIBUTE = re.compile(r'^argument --\w+: Invalid', re.MULTILINE)


class _Parser(cfg._CachedArgumentParser):
    """A parser without abbreviations, as are those of its commands."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.allow_abbrev = False


class Options(cfg.ConfigOpts):
    """Options of one of our programs, from its arguments and files.

    oslo.config offers ``--shell_completion``, but none of its packages has
    the templates that it needs. Abbreviations are refused, because half an
    option must not do a whole thing, as ``--restor``.
    """

    supported_shell_completion: list[str] = []

    def __init__(self) -> None:
        super().__init__()
        self.unregister_opt(self._shell_completion_opt)

    def __call__(
        self, args: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        """Parse a command line and read the configuration files.

        :raises SystemExit: on --help, --version and wrong arguments, the
            latter with the option that was probably meant on stderr.
        """
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                super().__call__(args, **kwargs)
        except SystemExit as exit_request:
            # oslo.config writes the names of wrong values as attributes.
            text = _ATTRIBUTE.sub(
                lambda match: match[0].replace('_', '-'), said.getvalue()
            )
            sys.stderr.write(text)
            if exit_request.code == 2:
                self._print_hint(sys.argv[1:] if args is None else args)
            raise
        sys.stderr.write(said.getvalue())

    def _pre_setup(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._pre_setup(*args, **kwargs)
        # oslo.config has no option for it. With abbreviations, a mistyped
        # --restor would restore.
        self._oparser.__class__ = _Parser
        self._oparser.allow_abbrev = False
        return found

    def parser(self, program: str) -> argparse.ArgumentParser:
        """Return the parser of the command line; read no file.

        For the documentation and completion of the program.

        :param program: name of the program.
        """
        # The help, because other command lines may lack what is required.
        with (
            contextlib.suppress(SystemExit),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self(
                ['--help'],
                prog=program,
                version=version.version_string(),
                default_config_files=[],
                default_config_dirs=[],
            )
        parser = self._oparser
        assert isinstance(parser, argparse.ArgumentParser)
        return parser

    def _print_hint(self, args: Sequence[str]) -> None:
        """Print which option was probably meant by an unknown one."""
        text = io.StringIO()
        self.print_help(text)
        known = set(re.findall(r'--[\w-]+', text.getvalue()))
        for word in args:
            option = word.partition('=')[0]
            if not option.startswith('--') or option in known:
                continue
            hint = close_match.hint(option, known)
            if hint:
                print(
                    f'{self.prog}: {option} is no option{hint}',
                    file=sys.stderr,
                )


def check(
    conf: cfg.ConfigOpts, groups: Iterable[tuple[Any, Iterable[Any]]]
) -> None:
    """Read every option once.

    oslo.config checks a value when it is first read. A wrong value is to
    stop a service when it starts, not when the value is first needed.

    :param groups: groups with their options, as from ``list_opts()``.
    :raises cfg.Error: a value is wrong; the message names the first such
        option.
    """
    for group, options in groups:
        name = group if isinstance(group, str) else group.name
        for option in options:
            read(conf, name, option.dest, secret=option.secret)


def read(
    conf: cfg.ConfigOpts, group: str, name: str, *, secret: bool = False
) -> Any:
    """Return the value of an option, None if it is not registered.

    :param secret: whether the message must not contain any of the value.
    :raises cfg.Error: the value is wrong; the message names the option.
    """
    where = conf if group == DEFAULT else conf[group]
    if name not in where:
        # keystoneauth registers the options of the chosen plugin only.
        return None
    try:
        return where[name]
    except (cfg.Error, ValueError, RecursionError) as error:
        cause: BaseException | None = error
        if group == DEFAULT and isinstance(error, cfg.NoSuchOptError):
            # In DEFAULT, oslo.config replaces any error by this one.
            cause = error.__context__
        raise cfg.Error(f'[{group}]{name}: {_reason(cause, secret)}') from None


def replace_wrong(
    conf: cfg.ConfigOpts, group: str, options: Iterable[Any]
) -> None:
    """Have options with a wrong value use their defaults, with a warning.

    For what must be done even so, such as restoring servers.
    """
    for option in options:
        name = option.dest
        try:
            read(conf, group, name)
        except cfg.Error as error:
            conf.set_override(name, option.default, group)
            LOG.warning('%s; using the default, %s', error, option.default)


def reason(error: Exception) -> str:
    """Return in one line why a configuration cannot be read."""
    text = plain(' '.join(str(error).split()))
    if isinstance(error, cfg.ConfigFilesNotFoundError):
        missing = ', '.join(error.config_files)
        return f'there is no configuration file {missing} (--config-file)'
    if isinstance(error, UnicodeDecodeError):
        # oslo.config does not name the file.
        for frame, _ in traceback.walk_tb(error.__traceback__):
            parser = frame.f_locals.get('self')
            if isinstance(parser, cfg.ConfigParser):
                return f'{parser.filename}: not UTF-8 text: {text}'
    return text


def plain(text: str) -> str:
    """Return a message of oslo.config with places that people understand."""
    return _PLACE.sub(
        lambda match: match[2] or f'the {match[1].replace("_", " ")}', text
    )


def report_missing_files(conf: cfg.ConfigOpts) -> None:
    """Log a warning if no configuration file was given or found."""
    if conf.config_file or conf.config_dir:
        return
    LOG.warning(
        'There is no configuration file in /etc/%s, so that options have '
        'their defaults unless the environment sets them; give --config-file '
        'if it is elsewhere',
        conf.project,
    )


def set_up_log(conf: cfg.ConfigOpts, program: str) -> None:
    """Open the log that the options of oslo.log describe.

    :param program: name of the program.
    :raises cfg.Error: the log file cannot be written, the system's log
        cannot be used, or the file of ``log_config_append`` is wrong; the
        message names the options.
    :raises OSError: the system's log is not reachable.
    """
    if conf.log_config_append:
        with described_log(conf):
            log.setup(conf, program)
    else:
        _set_up_log(conf, program)
    log_format.set_up(conf)


@contextlib.contextmanager
def described_log(conf: cfg.ConfigOpts) -> Iterator[None]:
    """Set up the log from ``log_config_append``; restore loggers on failure.

    :raises cfg.Error: the file is wrong; the message names it and the fault.
    """
    try:
        with log_format.kept():
            yield
    except log.LogConfigError as error:
        text = error.err_msg
    except Exception as error:
        # Python evaluates expressions of that file, so anything can be
        # raised.
        text = f'{type(error).__name__}: {error}'
    else:
        return
    raise cfg.Error(
        f'[DEFAULT]log_config_append: {conf.log_config_append} describes no '
        f"log as Python's logging.config.fileConfig takes it: {text}"
    )


def _set_up_log(conf: cfg.ConfigOpts, program: str) -> None:
    try:
        log.setup(conf, program)
    except OSError as error:
        if error.filename is None:
            raise
        raise cfg.Error(
            f'[DEFAULT]log_dir or log_file: {error.filename} cannot be '
            f'written: {error.strerror}; its directory must be there, and a '
            'systemd unit needs LogsDirectory= for it'
        ) from error
    except (RuntimeError, TypeError) as error:
        # The Python package for journald is missing, or syslog does not have
        # that facility.
        raise cfg.Error(
            f'[DEFAULT]use_journal, use_syslog or syslog_log_facility: {error}'
        ) from error


def _reason(error: BaseException | None, secret: bool) -> str:
    if isinstance(error, RecursionError):
        text = 'its value names itself by $'
    elif isinstance(error, cfg.TemplateSubstitutionError):
        text = 'its value names a group by $'
    elif isinstance(error, cfg.NoSuchOptError | cfg.NoSuchGroupError):
        text = 'its value names an option by $' + (
            ' that there is not' if secret else f', and there is {error}'
        )
    else:
        return plain(str(error))
    return f'{text}; a dollar sign is written $$'
