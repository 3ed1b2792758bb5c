"""Prompts of the script strategies: what the paper's appendix G says they hold, in our words.

Templates are the text files in prompts/; the parts below fill them. Every prompt shows
the module's source (its first 2,500 characters in the paper) and recent history; those
of the coverage-guided strategies show the coverage map too (appendix G.1).
"""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from runner.nouns import Message, Step

if TYPE_CHECKING:
    from runner.episode import Episode

SHOWN_SCRIPT = 1200
"""Characters of an earlier script that a prompt repeats."""
SHOWN_OUTPUT = 300


def template(name: str) -> str:
    """The text of prompts/NAME.txt."""
    return (resources.files("runner.strategies") / "prompts" / f"{name}.txt").read_text()


SYSTEM, SCRIPT, PLAN, SELECT, SCORE = (
    template(name) for name in ("system", "script", "plan", "select", "score")
)

HINTS = (
    "Direction for this plan: the main functionality, as an ordinary user of the module would use it.",
    "Direction for this plan: error handling, with input that is wrong, missing, too long or mistyped.",
    "Direction for this plan: interactions, where classes and functions of the module work on each other.",
    "Direction for this plan: the deepest nested conditions, reached by setting up what they ask for.",
    "Direction for this plan: configuration and optional arguments that are rarely given.",
    "Direction for this plan: what only happens through other modules of the package.",
)
"""The paper names the first three (section 3, appendix B and G.2); the others serve K > 3."""


def conversation(text: str, **parts: object) -> list[Message]:
    """The system message, and a filled template; a line that is an empty part alone is left out."""
    empty = {f"${name}" for name, part in parts.items() if part == ""}
    lines = [line for line in text.splitlines() if line not in empty]
    filled = Template("\n".join(lines)).substitute({name: str(part) for name, part in parts.items()})
    return [Message("system", SYSTEM.strip()), Message("user", filled)]


def source_part(episode: Episode, characters: int) -> str:
    """The module's source; its first `characters`, or all of it for 0."""
    source = episode.facts.source
    cut = source[:characters] if characters else source
    note = "" if len(cut) == len(source) else f", its first {len(cut)} of {len(source)} characters"
    return f"Source{note}:\n<source>\n{cut}\n</source>"


def history_part(episode: Episode, count: int, with_coverage: bool) -> str:
    """The last `count` scripts and what came of them."""
    recent = episode.history[-count:] if count else []
    if not recent:
        return "No script has run yet."
    shown = "\n".join(_shown(step, with_coverage) for step in recent)
    return f"The last {len(recent)} scripts:\n{shown}"


def coverage_part(episode: Episode) -> str:
    """The coverage map as text (appendix G.1): discovered, recent rate, stagnation, best tests."""
    found = episode.coverage
    lines = ["<coverage>", f"Branches discovered: {len(found.branches)} in {len(found.growth)} scripts."]
    rate = found.recent_rate()
    if rate is not None:
        lines.append(f"New branches a script, lately: {rate:.1f}.")
    if found.stagnation >= 3:
        lines.append(
            f"STAGNATION: the last {found.stagnation} scripts discovered nothing. "
            "Do something of another kind: other functions, other types, other set-up."
        )
    best = found.best(episode.history)
    if best:
        lines.append("The scripts that discovered the most:")
        lines += [_shown(step, with_coverage=True) for step in best]
    lines.append("Aim at branches that are not discovered yet.")
    lines.append("</coverage>")
    return "\n".join(lines)


def numbered(scripts: list[str], noun: str) -> str:
    """Scripts as numbered code blocks."""
    return "\n".join(
        f"{noun} {number}:\n```python\n{script[:SHOWN_SCRIPT]}\n```"
        for number, script in enumerate(scripts, 1)
    )


def _shown(step: Step, with_coverage: bool) -> str:
    head = f"Script {step.number}: {step.outcome}"
    if step.exception:
        head += f" ({step.exception[:SHOWN_OUTPUT]})"
    if with_coverage:
        head += f", {len(step.new_branches)} new branches"
    if step.script is None:
        return head
    text = f"{head}\n```python\n{step.script[:SHOWN_SCRIPT]}\n```"
    output = step.output[:SHOWN_OUTPUT].strip()
    return f"{text}\nOutput: {output}" if output else text
