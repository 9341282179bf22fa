# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Makes the controller that the options configure.

Policies and predictors are plugins (entry points). :mod:`nova_vhpc.control`
itself knows neither options nor plugins.
"""

import dataclasses
import operator
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent import errors, plugins
from nova_vhpc.conf import control as control_conf
from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.linux.cpus import SYNTAX, format_cpu_set, parse_cpu_set

GROUP = control_conf.GROUP.name

PLUGINS = {
    'slice_policy': 'nova_vhpc.slice_policies',
    'pinning_policy': 'nova_vhpc.pinning_policies',
    'predictor': 'nova_vhpc.predictors',
}
"""Entry point group by option."""

_POOLS = {
    'io_pool_cpus': 'I/O pool',
    'computing_pool_cpus': 'computing pool',
}

_BOUNDS = (
    ('beta_us', operator.lt, 'alpha_us'),
    ('min_threshold_us', operator.lt, 'default_slice_us'),
    ('otsu_renewal', operator.le, 'otsu_history'),
    ('gang_max_window_us', operator.ge, 'gang_window_us'),
    ('gang_min_window_us', operator.le, 'gang_max_window_us'),
)
_WORDS = {
    operator.lt: 'less than',
    operator.le: 'at most',
    operator.ge: 'at least',
}


def make_controller(
    conf: cfg.ConfigOpts,
    cpus: Iterable[model.Cpu],
    offline: frozenset[int] = frozenset(),
) -> controller.Controller:
    """Return the controller that ``[vhpc_control]`` configures.

    :param conf: with the options of ``nova_vhpc.conf.control`` registered.
    :param cpus: host CPUs that guests may be pinned to.
    :param offline: CPUs that are switched off, to which guests may be pinned
        once the CPUs are on.
    :raises ConfigError: naming the option, its value and what is allowed.
    """
    config = make_config(conf, cpus, offline)
    return controller.Controller(
        config,
        _make(conf, 'slice_policy', config),
        _make(conf, 'pinning_policy', config),
        load_plugin('predictor', _option(conf, 'predictor')),
    )


def follows_io(conf: cfg.ConfigOpts) -> bool:
    """Return whether the policies in use need the I/O events of every period.

    If not, I/O events are only shown, and may be read less often. A plugin
    that does not say counts as needing them.

    :raises ConfigError: naming the option, its value and what is allowed.
    """
    pinning_policy, slice_policy = (
        load_plugin(option, _option(conf, option))
        for option in ('pinning_policy', 'slice_policy')
    )
    return bool(
        getattr(pinning_policy, 'uses_phases', True)
        or getattr(slice_policy, 'uses_io', True)
    )


def make_config(
    conf: cfg.ConfigOpts,
    cpus: Iterable[model.Cpu],
    offline: frozenset[int] = frozenset(),
) -> control_config.ControlConfig:
    """Return all options of ``[vhpc_control]`` except the plugins' names.

    :param cpus, offline: see :func:`make_controller`.
    :raises ConfigError: naming the option, its value and what is allowed.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(control_config.ControlConfig):
        if field.name not in _POOLS and field.name in control_conf.NAMES:
            values[field.name] = _option(conf, field.name)
    usable = offline | frozenset(cpu.id for cpu in cpus)
    for name in _POOLS:
        values[name] = _pool(conf, name, usable)
    _check_pools(values, usable)
    _check_bounds(values)
    return control_config.ControlConfig(**values)


def load_plugin(option: str, name: str) -> Callable[..., Any]:
    """Return the class that an option names.

    :param option: name of the option, a key of :data:`PLUGINS`.
    :param name: value of the option.
    :raises ConfigError: there is no such class, or it cannot be imported.
    """
    value = f'[{GROUP}]{option} = {name}'
    return plugins.load(PLUGINS[option], name, value, 'unknown')


def _make(
    conf: cfg.ConfigOpts, option: str, config: control_config.ControlConfig
) -> Any:
    """Return an instance of the policy that an option names.

    :raises ConfigError: there is no such policy, or its constructor failed.
    """
    name = _option(conf, option)
    policy = load_plugin(option, name)
    try:
        return policy(config)
    except Exception as error:
        raise errors.ConfigError(
            f'[{GROUP}]{option} = {name}: failed: {error!r}'
        ) from error


def _option(conf: cfg.ConfigOpts, name: str) -> Any:
    """Return an option's value.

    :raises ConfigError: the value is invalid.
    """
    try:
        return getattr(conf[GROUP], name)
    except (ValueError, cfg.ConfigFileValueError) as error:
        raise errors.ConfigError(f'[{GROUP}]{name}: {error}') from None


def _pool(
    conf: cfg.ConfigOpts, name: str, usable: frozenset[int]
) -> frozenset[int] | None:
    text = _option(conf, name)
    if not text:
        return None
    pool = parse_cpu_set(text)
    missing = pool - usable
    if missing:
        raise errors.ConfigError(
            f'[{GROUP}]{name} = {text}: CPUs '
            f'{format_cpu_set(missing)} do not exist or are not '
            f'in cpu_shared_set; allowed: {SYNTAX} within '
            f'{format_cpu_set(usable)}'
        )
    return pool


def _check_pools(values: dict[str, Any], usable: frozenset[int]) -> None:
    """Check that the pools are disjoint, and neither has all CPUs.

    :raises ConfigError: a pool breaks this rule.
    """
    io_pool = values['io_pool_cpus']
    computing = values['computing_pool_cpus']
    if io_pool and computing and io_pool & computing:
        raise errors.ConfigError(
            f'[{GROUP}]io_pool_cpus = {format_cpu_set(io_pool)}: '
            f'CPUs {format_cpu_set(io_pool & computing)} are in '
            f'computing_pool_cpus = {format_cpu_set(computing)}, '
            'too; allowed: pools that do not overlap'
        )
    for name, pool in (
        ('io_pool_cpus', io_pool),
        ('computing_pool_cpus', computing),
    ):
        if pool and pool >= usable:
            raise errors.ConfigError(
                f'[{GROUP}]{name} = {format_cpu_set(pool)}: takes '
                'every CPU of the host; allowed: a set that leaves at least '
                'one CPU for the other pool'
            )


def _check_bounds(values: dict[str, Any]) -> None:
    """Check values that are bounded by another value.

    Algorithm 1 of the ATC paper needs alpha > beta, and DEFAULT above the
    threshold.

    :raises ConfigError: a value breaks a bound.
    """
    for name, compare, other in _BOUNDS:
        if not compare(values[name], values[other]):
            raise errors.ConfigError(
                f'[{GROUP}]{name} = {values[name]}: allowed: '
                f'{_WORDS[compare]} {other} = {values[other]}'
            )
