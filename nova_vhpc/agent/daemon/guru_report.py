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

"""Guru meditation report on SIGUSR2, with the live plan in it."""

from collections.abc import Callable
from typing import Any

from oslo_reports import guru_meditation_report, opts
from oslo_reports.generators import conf as conf_generator
from oslo_reports.models import with_default_views
from oslo_reports.views.text import generic

from nova_vhpc import version


class Version:
    """What oslo.reports asks about the package."""

    def vendor_string(self) -> str:
        """Who makes it."""
        return 'OpenStack'

    def product_string(self) -> str:
        """What it is."""
        return 'nova-vhpc-agent'

    def version_string_with_package(self) -> str:
        """Which one it is."""
        return version.version_string()


class StatusModel(with_default_views.ModelWithDefaultViews):
    """The status document, as text."""

    def __init__(self, data: dict[str, Any]) -> None:
        super().__init__(data, text_view=generic.KeyValueView())


def register_opts(conf: Any) -> None:
    """Register ``[oslo_reports]``."""
    opts.set_defaults(conf)


def set_up(conf: Any, status: Callable[[], dict[str, Any]]) -> None:
    """Answer SIGUSR2. Call it in the main thread."""
    report = guru_meditation_report.TextGuruMeditation
    report.register_section(
        'nova-vhpc Live Plan', lambda: StatusModel(status())
    )
    report.register_section(
        'nova-vhpc Configuration', conf_generator.ConfigReportGenerator(conf)
    )
    report.setup_autorun(Version(), service_name='nova-vhpc-agent', conf=conf)
