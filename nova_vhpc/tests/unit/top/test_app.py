# SPDX-FileCopyrightText: nova-vhpc developers
# SPDX-License-Identifier: Apache-2.0


"""The screen, driven by keys."""

import asyncio
import unittest
from collections.abc import Callable

from textual import pilot, widgets

from nova_vhpc.tests import base
from nova_vhpc.tests.unit.top import documents
from nova_vhpc.top import app
from nova_vhpc.top import table as parts
from nova_vhpc.top.app import Polled
from nova_vhpc.top.model import Order
from nova_vhpc.top.sources import Answers, SourceError

LONG_S = 3600.0
"""An interval in which no test asks again."""

SEVERAL = documents.document(
    documents.vm('wn-1', received=0.99),
    documents.vm('wn-2', received=0.7, reason='no gang window: [why]'),
    documents.vm('oc-1', documents.OCEAN, problem='no journal'),
)


class Source:
    """Answers with a document; fails without one."""

    def __init__(self, document: dict | None = None) -> None:
        self.document = document
        self.error: Exception | None = None

    def fetch(self) -> Answers:
        if self.error is not None:
            raise self.error
        if self.document is None:
            raise SourceError('the agent is gone')
        return Answers({'': self.document})


def make(document: dict, **arguments: object) -> app.TopApp:
    return app.TopApp(
        Source().fetch, Answers({'': document}), LONG_S, **arguments
    )


def names(top: app.TopApp) -> list[str]:
    """Return the first cell of each row."""
    table = top.screen_stack[0].query_one(parts.ServerTable)
    return [
        str(table.get_row_at(number)[0]).strip()
        for number in range(table.row_count)
    ]


def words(top: app.TopApp, name: str) -> str:
    widget = top.screen_stack[0].query_one(f'#{name}', widgets.Static)
    return str(widget.render())


async def settle(run: pilot.Pilot) -> None:
    """Wait until all messages and the drawing after them are done."""
    await run.pause()
    await run.pause()


async def until(run: pilot.Pilot, condition: Callable[[], bool]) -> None:
    """Wait for what a thread or the terminal brings about."""
    async with asyncio.timeout(120):
        while not condition():
            await run.pause(0.01)


class ScreenTest(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        # The debug mode warns of whatever is slow on a busy machine.
        asyncio.get_running_loop().set_debug(False)

    async def test_clusters_have_their_servers_below(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await settle(run)
            self.assertEqual(
                ['ocean (1)', 'oc-1', '3f9a6c21 (2)', 'wn-1', 'wn-2'],
                names(top),
            )
            self.assertIn('compute-1: CPUs 0-31', words(top, 'head'))
            self.assertIn('1 server, 16 vCPUs', words(top, 'detail'))
            self.assertIn('sorted by name', words(top, 'head'))

    async def test_cursor_chooses_what_is_said_below(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await run.press('end')
            await settle(run)
            self.assertIn('no gang window: [why]', words(top, 'detail'))
            await run.press('g', 'j')
            await settle(run)
            self.assertIn('no journal', words(top, 'detail'))

    async def test_sort_and_reverse(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await run.press('s', 's')
            await settle(run)
            self.assertIn('sorted by received', words(top, 'head'))
            self.assertEqual(['3f9a6c21 (2)', 'wn-2', 'wn-1'], names(top)[:3])
            await run.press('r')
            await settle(run)
            self.assertIn('backwards', words(top, 'head'))
            self.assertEqual('wn-1', names(top)[names(top).index('wn-2') - 1])

    async def test_filter_is_typed_kept_and_cleared(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await run.press('slash', 'q', 'backspace', *'oce', 'enter')
            await settle(run)
            self.assertEqual(['ocean (1)', 'oc-1'], names(top))
            self.assertIn('only what has: oce', words(top, 'head'))
            await run.press('slash', 'x', 'enter')
            await settle(run)
            self.assertEqual([], names(top))
            self.assertIn('No server has these words', words(top, 'detail'))
            await run.press('escape')
            await settle(run)
            self.assertEqual(5, len(names(top)))

    async def test_clusters_are_folded_one_or_all(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await run.press('enter')
            await settle(run)
            self.assertEqual('3f9a6c21 (2)', names(top)[1])
            await run.press('end', 'enter')
            await settle(run)
            self.assertEqual(['ocean (1)', '3f9a6c21 (2)'], names(top))
            await run.press('c')
            await settle(run)
            self.assertEqual(5, len(names(top)))
            await run.press('c')
            await settle(run)
            self.assertEqual(2, len(names(top)))

    async def test_pages_open_and_close(self) -> None:
        document = documents.document(refused={'uuid-1': '[disk] full'})
        top = make(document)
        async with top.run_test(size=(80, 24)) as run:
            for key, text in (('question_mark', 'quit'), ('i', '[disk] full')):
                await run.press(key)
                await settle(run)
                self.assertIsInstance(top.screen, parts.TextScreen)
                page = top.screen.query_one(widgets.Static)
                self.assertIn(text, str(page.render()))
                await run.press('q')
                await settle(run)
                self.assertNotIsInstance(top.screen, parts.TextScreen)
                self.assertTrue(top.is_running)

    async def test_q_and_ctrl_c_leave_with_status_0(self) -> None:
        for keys in (['q'], ['ctrl+c'], ['slash', 'ctrl+c']):
            top = make(SEVERAL)
            async with top.run_test() as run:
                await run.press(*keys)
                await until(run, lambda top=top: not top.is_running)
            self.assertEqual(0, top.return_code or 0)

    async def test_new_answers_keep_the_cursor_on_its_server(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await run.press('end')
            more = documents.document(
                documents.vm('aa', documents.OCEAN),
                *SEVERAL['vms'],
                documents.vm('zz'),
            )
            top.post_message(Polled(Answers({'': more})))
            await settle(run)
            self.assertEqual(7, len(names(top)))
            self.assertIn('wn-2 (', words(top, 'detail'))

    async def test_new_values_of_the_same_servers_are_shown(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            await settle(run)
            table = top.query_one(parts.ServerTable)
            row = names(top).index('wn-1')
            self.assertIn('99', str(table.get_row_at(row)[2]))
            changed = documents.document(
                documents.vm('wn-1', received=0.42), *SEVERAL['vms'][1:]
            )
            top.post_message(Polled(Answers({'': changed})))
            await settle(run)
            self.assertIn('42', str(table.get_row_at(row)[2]))

    async def test_frozen_screen_keeps_what_it_shows(self) -> None:
        top = make(SEVERAL)
        other = Answers({'': documents.document(documents.vm('other'))})
        async with top.run_test(size=(80, 24)) as run:
            await run.press('p')
            top.post_message(Polled(other))
            await settle(run)
            self.assertIn('FROZEN', words(top, 'head'))
            self.assertIn('wn-1', names(top))
            await run.press('p')
            top.post_message(Polled(other))
            await settle(run)
            self.assertNotIn('wn-1', names(top))

    async def test_silence_is_said_and_the_last_answer_stays(self) -> None:
        top = make(SEVERAL)
        async with top.run_test(size=(80, 24)) as run:
            for failure, text in (
                (Polled(None, 'the agent is gone'), 'the agent is gone'),
                (Polled(Answers({'': {}})), 'another version'),
            ):
                top.post_message(failure)
                await settle(run)
                self.assertIn('No answer for ', words(top, 'problems'))
                self.assertIn(text, words(top, 'problems'))
                self.assertIn('wn-1', names(top))
            top.post_message(Polled(Answers({'': SEVERAL})))
            await settle(run)
            self.assertEqual('', words(top, 'problems'))

    async def test_many_problems_leave_room_for_the_table(self) -> None:
        refused = {f'uuid-{number}': 'full' for number in range(30)}
        top = make(documents.document(refused=refused))
        async with top.run_test(size=(80, 24)) as run:
            await settle(run)
            shown = words(top, 'problems').splitlines()
            self.assertEqual(3, len(shown))
            self.assertEqual('28 more: press i', shown[-1])

    async def test_columns_follow_the_width(self) -> None:
        top = make(documents.many())
        async with top.run_test(size=(80, 24)) as run:
            await settle(run)
            table = top.query_one(parts.ServerTable)
            narrow = len(table.columns)
            self.assertEqual(0, table.max_scroll_x)
            await run.resize_terminal(200, 50)
            await until(run, lambda: len(table.columns) > narrow)
            await settle(run)
            self.assertEqual(0, table.max_scroll_x)

    async def test_answers_are_asked_for_again(self) -> None:
        source = Source(documents.document(documents.vm('later')))
        first = Answers({'': documents.document()})
        top = app.TopApp(source.fetch, first, 0.01)
        async with top.run_test(size=(80, 24)) as run:
            await until(run, lambda: 'later' in names(top))
            source.document = None
            gone = 'the agent is gone'
            await until(run, lambda: gone in words(top, 'problems'))
            source.error = RuntimeError('a library broke')
            broken = 'a library broke'
            await until(run, lambda: broken in words(top, 'problems'))
            source.error, source.document = None, documents.document()
            await until(run, lambda: words(top, 'problems') == '')

    async def test_options_choose_order_and_filter(self) -> None:
        top = make(SEVERAL, chosen=Order.RECEIVED, words='gang window')
        async with top.run_test(size=(80, 24)) as run:
            await settle(run)
            self.assertEqual(['3f9a6c21 (2)', 'wn-2', 'wn-1'], names(top))

    async def test_long_notes_take_the_free_lines(self) -> None:
        reason = 'windows cost its neighbours too much, ' * 4 + 'so none'
        document = documents.document(
            documents.vm('wn-1', reason=reason),
            documents.vm('wn-2', reason=reason),
        )
        top = make(document)
        async with top.run_test(size=(120, 40)) as run:
            await settle(run)
            table = top.query_one(parts.ServerTable)
            shown = str(table.get_row_at(1)[-1])
            self.assertEqual(reason, ' '.join(shown.split()))
            self.assertEqual(
                [len(shown.splitlines())] * 2,
                [row.height for row in table.ordered_rows[1:]],
            )
            await run.resize_terminal(120, 12)
            await until(run, lambda: table.ordered_rows[2].height == 1)
            self.assertTrue(str(table.get_row_at(2)[-1]).endswith('…'))
            self.assertEqual(0, table.max_scroll_y)
            await run.press('end')
            await settle(run)
            self.assertIn(reason[:40], words(top, 'detail'))


class PictureTest(base.TestCase):
    def test_picture_has_the_table_and_no_foreign_fonts(self) -> None:
        top = app.TopApp(Source().fetch, Answers({'': documents.many()}))
        svg = app.picture(top, (100, 30))
        self.assertIn('>wn-0', svg)
        self.assertNotIn('url("http', svg)
        self.assertTrue(svg.startswith('<svg'))


class MendTest(base.TestCase):
    def test_blanks_at_the_start_become_a_place(self) -> None:
        text = (
            '<text x="12.2" y="5" textLength="36.6" c="#">&#160;&#160;a</text>'
        )
        self.assertEqual(
            '<text x="36.6" y="5" textLength="12.2" c="#">a</text>\n',
            app.mend(text),
        )

    def test_nothing_is_fetched_from_other_sites(self) -> None:
        svg = (
            '<style>@font-face { font-family: "Fira Code"; src: url("u"); }\n'
            '.m { font-family: Fira Code, monospace; }</style>'
        )
        self.assertEqual(
            '<style>.m { font-family: monospace; }</style>\n',
            app.mend(svg),
        )
