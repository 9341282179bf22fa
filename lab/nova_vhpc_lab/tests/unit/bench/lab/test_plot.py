# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""Tests of the lab's pictures."""

import json
import tempfile
from pathlib import Path
from unittest import mock

from nova_vhpc.tests import base
from nova_vhpc_lab.bench.lab import mixes, plot, policies


class PlotTest(base.TestCase):
    def draw(self, document):
        """Draw; return legend, axes, ends of bars and y range, by file."""
        from matplotlib import figure

        drawn = {}

        def record(picture, path, **options):
            picture.draw_without_rendering()
            axes = picture.axes[0]
            drawn[path.name] = (
                picture.legends[0].get_window_extent(),
                axes.get_window_extent().frozen(),
                [bar.get_y() + bar.get_height() for bar in axes.patches],
                axes.get_ylim(),
            )

        with (
            tempfile.TemporaryDirectory() as name,
            mock.patch.object(figure.Figure, 'savefig', record),
        ):
            plot.draw(document, Path(name))
        return drawn

    def test_legend_does_not_overlap_the_bars(self):
        figures = {'speedup': 2.0, 'efficiency': 0.9, 'fairness': 0.9}
        by_policy = dict.fromkeys(policies.POLICIES, figures)
        document = {'mixes': dict.fromkeys(mixes.MIXES, by_policy)}
        drawn = self.draw(document)
        self.assertEqual(3, len(drawn))
        for name, (legend, axes, _, _) in drawn.items():
            with self.subTest(name):
                self.assertFalse(legend.overlaps(axes))

    def test_bars_of_execution_times_start_at_the_time_of_stock(self):
        figures = {'efficiency': 0.9, 'fairness': 0.9}
        document = {
            'mixes': {
                'clusters': {
                    'stock': {**figures, 'speedup': 1.0},
                    'default': {**figures, 'speedup': 1.25},
                }
            }
        }
        _, _, ends, y_range = self.draw(document)['lab-time.svg']
        self.assertEqual([1.0, 0.8], ends)
        self.assertEqual((0.5, 2.0), y_range)

    def test_pictures_are_written_as_svg(self):
        document = {
            'mixes': {
                'clusters': {
                    'stock': {
                        'speedup': 1.0,
                        'efficiency': 0.1,
                        'fairness': 0.2,
                    }
                }
            }
        }
        with tempfile.TemporaryDirectory() as name:
            for path in plot.draw(document, Path(name)):
                self.assertIn('<svg', path.read_text())
            self.assertEqual(document, json.loads(json.dumps(document)))

    def test_execution_times_are_normalised_to_stock(self):
        document = {
            'mixes': {
                'clusters': {
                    'stock': {'speedup': 1.0},
                    'default': {'speedup': 4.0},
                    'broken': {'speedup': None},
                }
            }
        }
        self.assertEqual(
            {'clusters': {'stock': 1.0, 'default': 0.25}},
            plot.normalised_times(document),
        )
