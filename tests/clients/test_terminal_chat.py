"""`kvasir chat` with its questions from a pipe."""
import subprocess

from scripted_model import SCRIPTS


def chat(binary, folder, questions, *flags):
    return subprocess.run([binary, "chat", folder, "--temp", "0", "-n", "40", *flags], input="\n".join(questions) + "\n",
                          capture_output=True, text=True, timeout=120)


def test_a_chat_answers_and_remembers(binary, script_folder):
    done = chat(binary, script_folder, ["[plain]", "/new", "[count]", "/quit", "[plain]"])

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [SCRIPTS["plain"], SCRIPTS["count"]]


def test_the_oldest_turns_are_dropped_with_a_line_that_says_so_srv72(binary, script_folder):
    done = chat(binary, script_folder, ["[plain] " + "x" * 100] * 6, "--ctx-size", "512")

    assert done.returncode == 0, done.stderr
    assert "[the oldest question and answer no longer fit the context of 512 tokens and were dropped]" in done.stdout
    assert done.stdout.count(SCRIPTS["plain"]) == 6
