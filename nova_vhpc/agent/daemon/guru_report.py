# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0

"""Guru meditation report on SIGUSR2, which includes the status document."""

from collections.abc import Callable
from typing import Any

from oslo_reports import guru_meditation_report, opts
from oslo_reports.generators import conf as conf_generator
from oslo_reports.models import with_default_views
from oslo_reports.views.text import generic

from nova_vhpc import version


class Version:
    """The version, as oslo.reports expects it."""

    def vendor_string(self) -> str:
        """Return the vendor."""
        return 'OpenStack'

    def product_string(self) -> str:
        """Return the product."""
        return 'nova-vhpc-agent'

    def version_string_with_package(self) -> str:
        """Return the version."""
        return version.version_string()


class StatusModel(with_default_views.ModelWithDefaultViews):
    """The status document as a section of the report."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data, text_view=generic.KeyValueView())


def register_opts(conf: Any) -> None:
    """Register ``[oslo_reports]``."""
    opts.set_defaults(conf)


def set_up(conf: Any, status: Callable[[], dict[str, Any]]) -> None:
    """Write a report on SIGUSR2 from now on; call it in the main thread.

    :param status: returns the status document.
    """
    report = guru_meditation_report.TextGuruMeditation
    report.register_section(
        'nova-vhpc Live Plan', lambda: StatusModel(status())
    )
    report.register_section(
        'nova-vhpc Configuration', conf_generator.ConfigReportGenerator(conf)
    )
    report.setup_autorun(Version(), service_name='nova-vhpc-agent', conf=conf)
