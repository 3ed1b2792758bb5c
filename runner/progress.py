"""What a person sees while a sweep runs: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, TextIO

from runner.dispatch import Dispatcher, Outcome, WorkerLost, WorkerStats

if TYPE_CHECKING:
    from rich.console import RenderableType

    from runner.drive import Tally

LINE_EVERY_S = 10.0
LIVE_EVERY_S = 0.5


class View:
    """Hears outcomes, asks workers how they fare, shows both."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        """`quiet` shows nothing at all: for commands whose output is one document."""
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._began = time.monotonic()
        self._ended = 0
        self._executions = 0
        self._dollars = 0.0
        self._price_unknown = False
        self._branches: dict[str, list[int]] = defaultdict(list)
        self._ends: Counter[str] = Counter()
        self._stats: list[WorkerStats] = []
        self.samples: list[list[WorkerStats]] = []
        """Every reading of the workers, for benchmarks."""

    def say(self, text: str) -> None:
        """One plain line."""
        if not self._quiet:
            print(text, file=self._stream, flush=True)

    def outcome(self, outcome: Outcome, again: bool) -> None:
        """An attempt has ended."""
        self._executions += outcome.executions
        self._ends[outcome.end] += 1
        if outcome.cost_usd is None:
            self._price_unknown = True
        else:
            self._dollars += outcome.cost_usd
        if not again:
            self._ended += 1
        if outcome.branches is not None:
            self._branches[outcome.label].append(outcome.branches)

    async def watch(self, dispatcher: Dispatcher, tally: Tally) -> None:
        """Until cancelled."""
        if self._quiet or not self._stream.isatty():
            await self._watch_lines(dispatcher, tally)
        else:
            await self._watch_live(dispatcher, tally)

    async def _watch_lines(self, dispatcher: Dispatcher, tally: Tally) -> None:
        last = None
        while True:
            await self.read(dispatcher)
            line = self._line(tally)
            if line != last:
                self.say(line)
                last = line
            await asyncio.sleep(LINE_EVERY_S if not self._quiet else LIVE_EVERY_S)

    async def _watch_live(self, dispatcher: Dispatcher, tally: Tally) -> None:
        from rich.console import Console
        from rich.live import Live

        with Live(console=Console(file=self._stream), refresh_per_second=4, transient=True) as live:
            while True:
                await self.read(dispatcher)
                live.update(self._panel(tally))
                await asyncio.sleep(LIVE_EVERY_S)

    async def read(self, dispatcher: Dispatcher) -> None:
        """Ask every worker how it fares."""
        found = []
        for handle in dispatcher.handles:
            with contextlib.suppress(WorkerLost, TimeoutError):  # the next reading will do
                found.append(await asyncio.wait_for(handle.stats(), 10))
        self._stats = found
        self.samples.append(found)

    def _line(self, tally: Tally) -> str:
        parts = [
            f"{tally.done} done, {tally.failed} failed, {tally.pending} pending of {tally.planned}",
            f"{self._rate():.1f} scripts/s",
            self._money(),
            f"ETA {self._eta(tally)}",
        ]
        if self._stats:
            busy, slots = self._busy()
            parts.append(f"{len(self._stats)} workers, slots {busy:.0%} of {slots} busy")
        best = sorted(self._means().items(), key=lambda item: -item[1])
        if best:
            parts.append("branches " + ", ".join(f"{label} {mean:.1f}" for label, mean in best[:4]))
        failures = {end: count for end, count in self._ends.items() if end != "completed"}
        if failures:
            parts.append(", ".join(f"{end} {count}" for end, count in failures.items()))
        return " | ".join(parts)

    def _panel(self, tally: Tally) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        head = Text(
            f"{tally.done} done   {tally.failed} failed   {tally.pending} pending   of {tally.planned}"
        )
        bar = ProgressBar(total=max(1, tally.planned), completed=tally.done + tally.failed, width=60)
        busy, slots = self._busy()
        rates = Text(
            f"{self._rate():.1f} scripts/s   {self._money()}   ETA {self._eta(tally)}   "
            f"{len(self._stats)} workers, {slots} slots {busy:.0%} busy"
        )
        table = Table(box=None, pad_edge=False)
        table.add_column("strategy")
        table.add_column("episodes", justify="right")
        table.add_column("mean branches so far", justify="right")
        for label, mean in sorted(self._means().items(), key=lambda item: -item[1]):
            table.add_row(label, str(len(self._branches[label])), f"{mean:.1f}")
        ends = Text("ends: " + (", ".join(f"{end} {n}" for end, n in sorted(self._ends.items())) or "none"))
        errors = [Text(f"{end}: {error}") for end, error in tally.last_errors.items()]
        return Panel(Group(head, bar, rates, table, ends, *errors), title="corridor", expand=False)

    def _rate(self) -> float:
        return self._executions / max(1e-9, time.monotonic() - self._began)

    def _money(self) -> str:
        return f"${self._dollars:.2f}" + (" and what has no known price" if self._price_unknown else "")

    def _eta(self, tally: Tally) -> str:
        if not self._ended:
            return "?"
        seconds = (time.monotonic() - self._began) / self._ended * tally.pending
        minutes, seconds = divmod(int(seconds), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours}:{minutes:02}:{seconds:02}"

    def _busy(self) -> tuple[float, int]:
        """(share of slot time that was used, slots)."""
        slots = sum(one.slots for one in self._stats)
        time_s = sum(one.slots * one.alive_s for one in self._stats)
        return sum(one.busy_s for one in self._stats) / time_s if time_s else 0.0, slots

    def _means(self) -> dict[str, float]:
        return {label: sum(found) / len(found) for label, found in self._branches.items()}
