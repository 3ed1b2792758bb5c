"""Branches and lines as coverage.py defines them, from raw arcs.

A branch is one executed arc out of a line with more than one exit, among the arcs
that coverage.py holds possible: what its JSON report lists under
`executed_branches` (coverage/results.py, Analysis.executed_branch_arcs). The
report's analysis parses the module each time; here that happens once a module, each
arc is looked at once, and a step costs a look-up for each of its arcs.
"""

from typing import Any, Dict, Iterable, List, Set, Tuple

Arc = Tuple[int, int]
"""(from line, to line). A negative line is the entry or exit of the code object that starts there."""


class Analysis:
    """What coverage.py's parser says of one file, and what a raw arc means in it."""

    def __init__(self, coverage: Any, file: str) -> None:
        """Parse `file` the way this coverage.py's reports do. Raises its NotPython, NoSource."""
        from coverage.python import PythonFileReporter

        self.file = file
        self._reporter = PythonFileReporter(file, coverage)
        self.source: str = self._reporter.source()
        self.statements: Set[int] = set(self._reporter.lines())
        self.possible: Set[Arc] = set(self._reporter.arcs())
        exits: Dict[int, int] = self._reporter.exit_counts()
        self.branch_lines = {line for line, count in exits.items() if count > 1}
        """Lines with more than one exit."""
        self.branches_total = sum(count for count in exits.values() if count > 1)
        destinations: Dict[int, Set[int]] = {}
        for src, dst in self.possible:
            destinations.setdefault(src, set()).add(dst)
        self._only_way = {src: min(dsts) for src, dsts in destinations.items() if len(dsts) == 1}
        self._meanings: Dict[Arc, Tuple[List[int], List[Arc]]] = {}

    def possible_branches(self) -> List[Arc]:
        """Every arc that could be reported as an executed branch, sorted."""
        return sorted(arc for arc in self.possible if arc[0] in self.branch_lines)

    def touched(self, arcs: Iterable[Arc]) -> Set[int]:
        """First lines of all statements that the arcs reach, those left out of coverage too."""
        return set(self._reporter.translate_lines({line for arc in arcs for line in arc if line > 0}))

    def first_line(self, line: int) -> int:
        """Of the statement that this line is part of."""
        (first,) = self._reporter.translate_lines({line})
        return int(first)

    def executed(self, arcs: Iterable[Arc]) -> Tuple[List[Arc], List[int]]:
        """(branches, lines) of one step from its tracer's arcs, each sorted."""
        branches = set()
        lines: Set[int] = set()
        known = self._meanings
        for arc in arcs:
            meaning = known.get(arc)
            if meaning is None:
                meaning = known[arc] = self._meaning(arc)
            lines.update(meaning[0])
            branches.update(meaning[1])
        return sorted(branches), sorted(lines)

    def _meaning(self, arc: Arc) -> Tuple[List[int], List[Arc]]:
        """(its statements, the branch it is, if it is one); each arc's is its own.

        Same steps as coverage/results.py, analysis_from_file_reporter: lines are the ends
        of arcs; arcs are moved to first lines of statements, or are none (a jump out of a
        `with`); an arc within one statement is its only way out, if it has only one.
        """
        ends = {line for line in arc if line > 0}
        lines = sorted(set(self._reporter.translate_lines(ends)) & self.statements)
        moved = []
        for src, dst in self._reporter.translate_arcs([arc]):
            if src != dst:
                moved.append((src, dst))
            elif src in self._only_way:
                moved.append((src, self._only_way[src]))
        taken = set(self._reporter.translate_arcs(moved)) & self.possible
        return lines, [one for one in taken if one[0] in self.branch_lines]
