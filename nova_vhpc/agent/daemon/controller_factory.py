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

"""Makes the controller that the options ask for.

Policies and predictors are plugins (entry points); :mod:`nova_vhpc.control`
itself knows nothing of options or plugins.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from oslo_config import cfg

from nova_vhpc.agent import errors, plugins
from nova_vhpc.conf import control as control_conf
from nova_vhpc.control import config as control_config
from nova_vhpc.control import controller, model
from nova_vhpc.linux import cpus as host_cpus

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


def make_controller(
    conf: cfg.ConfigOpts,
    cpus: Iterable[model.Cpu],
    off: frozenset[int] = frozenset(),
) -> controller.Controller:
    """Build the controller from ``[vhpc_control]``.

    :param conf: with the options of ``nova_vhpc.conf.control`` registered.
    :param cpus: host CPUs that VMs may be pinned to.
    :param off: numbers of others, to which they may once these are on.
    :raises ConfigError: naming option, value and what is allowed.
    """
    config = make_config(conf, cpus, off)
    return controller.Controller(
        config,
        _make(conf, 'slice_policy', config),
        _make(conf, 'pinning_policy', config),
        load_plugin('predictor', _option(conf, 'predictor')),
    )


def follows_io(conf: cfg.ConfigOpts) -> bool:
    """Whether the policies in use need the I/O events of every period.

    If not, they are only shown, and need not be read as often. Of a plugin
    that does not say it, it is believed.

    :raises ConfigError: naming option, value and what is allowed.
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
    off: frozenset[int] = frozenset(),
) -> control_config.ControlConfig:
    """Read and check all of ``[vhpc_control]`` but the plugins' names.

    :param cpus, off: see :func:`make_controller`.
    :raises ConfigError: naming option, value and what is allowed.
    """
    values: dict[str, Any] = {}
    for field in dataclasses.fields(control_config.ControlConfig):
        if field.name not in _POOLS and field.name in control_conf.NAMES:
            values[field.name] = _option(conf, field.name)
    usable = off | frozenset(cpu.id for cpu in cpus)
    for name in _POOLS:
        values[name] = _pool(conf, name, usable)
    _check_pools(values, usable)
    _check_steps(values)
    return control_config.ControlConfig(**values)


def load_plugin(option: str, name: str) -> Callable[..., Any]:
    """Find the class that an option names.

    :param option: a key of :data:`PLUGINS`.
    :raises ConfigError: if there is none, or it cannot be imported.
    """
    value = f'[{GROUP}]{option} = {name}'
    return plugins.load(PLUGINS[option], name, value, 'unknown')


def _make(
    conf: cfg.ConfigOpts, option: str, config: control_config.ControlConfig
) -> Any:
    """Make the policy that an option names.

    :raises ConfigError: if there is none, or it fails; policies are plugins.
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
    """An option's value; oslo.config's complaint as one of ours."""
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
    allowed = f'{host_cpus.SYNTAX} within {host_cpus.format_cpu_set(usable)}'
    try:
        pool = host_cpus.parse_cpu_set(text)
    except ValueError as error:
        raise errors.ConfigError(
            f'[{GROUP}]{name} = {text}: {error}; allowed: {allowed}'
        ) from None
    missing = pool - usable
    if missing:
        raise errors.ConfigError(
            f'[{GROUP}]{name} = {text}: CPUs '
            f'{host_cpus.format_cpu_set(missing)} do not exist or are not '
            f'in cpu_shared_set; allowed: {allowed}'
        )
    return pool


def _check_pools(values: dict[str, Any], usable: frozenset[int]) -> None:
    """Pools must be disjoint, and leave CPUs for computing."""
    io_pool = values['io_pool_cpus']
    computing = values['computing_pool_cpus']
    if io_pool and computing and io_pool & computing:
        raise errors.ConfigError(
            f'[{GROUP}]io_pool_cpus = {host_cpus.format_cpu_set(io_pool)}: '
            f'CPUs {host_cpus.format_cpu_set(io_pool & computing)} are in '
            f'computing_pool_cpus = {host_cpus.format_cpu_set(computing)}, '
            'too; allowed: pools that do not overlap'
        )
    for name, pool in (
        ('io_pool_cpus', io_pool),
        ('computing_pool_cpus', computing),
    ):
        if pool and pool >= usable:
            raise errors.ConfigError(
                f'[{GROUP}]{name} = {host_cpus.format_cpu_set(pool)}: takes '
                'every CPU of the host; allowed: a set that leaves at least '
                'one CPU for the other pool'
            )


def _check_steps(values: dict[str, Any]) -> None:
    """Values that are bounded by another one.

    Algorithm 1 needs alpha > beta, and DEFAULT above the threshold.
    """
    if values['beta_us'] >= values['alpha_us']:
        raise errors.ConfigError(
            f'[{GROUP}]beta_us = {values["beta_us"]}: allowed: less than '
            f'alpha_us = {values["alpha_us"]}'
        )
    if values['min_threshold_us'] >= values['default_slice_us']:
        raise errors.ConfigError(
            f'[{GROUP}]min_threshold_us = {values["min_threshold_us"]}: '
            'allowed: less than default_slice_us = '
            f'{values["default_slice_us"]}'
        )
    if values['otsu_renewal'] > values['otsu_history']:
        raise errors.ConfigError(
            f'[{GROUP}]otsu_renewal = {values["otsu_renewal"]}: allowed: at '
            f'most otsu_history = {values["otsu_history"]}'
        )
    if values['gang_max_window_us'] < values['gang_window_us']:
        raise errors.ConfigError(
            f'[{GROUP}]gang_max_window_us = {values["gang_max_window_us"]}: '
            f'allowed: at least gang_window_us = {values["gang_window_us"]}'
        )
