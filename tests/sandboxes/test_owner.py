"""Whose a container or a folder is, and whether its owner lives."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from sandboxes.owner import LABEL, LEASE, OWNER, Owner, abandoned, scratch_prefix

ME = Owner.me()
ELSEWHERE = Owner("another-host", ME.pid, ME.started)
NOW = 1_000_000.0


@pytest.fixture
def dead() -> Owner:
    """A process that was, and was waited for."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = Owner.of(child.pid)
    assert owner.alive()
    child.communicate(b"\n")
    return owner


def label(owner: Owner) -> str:
    return owner.labels(60)[OWNER]


def test_this_process_is_alive() -> None:
    assert ME.alive() is True
    assert (ME.host, ME.pid) == (socket.gethostname(), os.getpid())


def test_a_dead_process_is_not(dead: Owner) -> None:
    assert dead.alive() is False


def test_a_process_that_was_not_waited_for_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    owner = Owner.of(child.pid)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.close()
    # The end of its output is the end of the process, but nobody has asked for its exit code.
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert owner.alive() is False
    child.stdout.close()
    child.wait()


def test_another_process_with_the_same_number_is_not_the_owner() -> None:
    assert Owner(ME.host, ME.pid, "1").alive() is False


def test_what_lives_on_another_machine_cannot_be_seen() -> None:
    assert ELSEWHERE.alive() is None


def test_labels_and_folder_names_say_who() -> None:
    assert Owner.parse(label(ME)) == ME
    assert Owner.of_folder(scratch_prefix() + "k3_x9ab1") == ME
    dashed = Owner("a-host-1.with-dashes", 17, "")
    assert Owner.parse(label(dashed)) == dashed


@pytest.mark.parametrize("text", ["", "host", "host x 1", "host -1 1", " "])
def test_other_labels_say_nobody(text: str) -> None:
    assert Owner.parse(text) is None


@pytest.mark.parametrize(
    "name", ["corridor-abc", "corridor-host-x-1-abc", "other-host-1-1-abc", "corridor--1-1-"]
)
def test_other_folders_say_nobody(name: str) -> None:
    assert Owner.of_folder(name) is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({OWNER: label(Owner(ME.host, ME.pid, "1"))}, False),  # not one of ours
        ({LABEL: "r", OWNER: label(ME), LEASE: str(int(NOW))}, False),
        ({LABEL: "r", OWNER: label(Owner(ME.host, ME.pid, "1")), LEASE: str(int(NOW))}, True),
        ({LABEL: "r", OWNER: label(ELSEWHERE), LEASE: str(int(NOW))}, False),
        ({LABEL: "r", OWNER: label(ELSEWHERE), LEASE: str(int(NOW) - 61)}, True),
        ({LABEL: "r", OWNER: label(ME), LEASE: str(int(NOW) - 61)}, True),
        ({LABEL: "r", OWNER: "nonsense", LEASE: "soon"}, False),
        ({LABEL: "r"}, False),
    ],
)
def test_abandoned(labels: dict[str, str], expected: bool) -> None:
    assert abandoned(labels, NOW) is expected
