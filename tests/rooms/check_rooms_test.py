#!/usr/bin/env python3
"""The rooms checker passes the good toy tree and names each planted fault of the bad one."""
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
CHECKER = HERE.parent.parent / "tools" / "check_rooms.py"
PLANTED = ["edge not in rooms.txt", "private header of another room", "intrinsics outside a backend",
           "CUDA outside its room", "third-party type in a door"]


def run(tree, rooms):
    return subprocess.run([sys.executable, CHECKER, tree, rooms], capture_output=True, text=True)


good = run(HERE / "good", HERE / "rooms.txt")
assert good.returncode == 0 and not good.stdout, good.stdout
bad = run(HERE / "bad", HERE / "rooms.txt")
assert bad.returncode == 1
for fault in PLANTED:
    assert fault in bad.stdout, f"not reported: {fault}\n{bad.stdout}"
with tempfile.NamedTemporaryFile("w", suffix=".txt") as cyclic:
    cyclic.write("base: kv\nkv: base\n")
    cyclic.flush()
    assert "cycle" in run(HERE / "good", cyclic.name).stdout
print(f"rooms checker: good tree passes, {len(PLANTED) + 1} planted faults named")
