#!/usr/bin/env python3
"""check_rooms.py SRC ROOMS: every include goes to an own file or to a door of an allowed room (docs/architecture.md).

ROOMS has one line a room: "kv: base tensor" ("*" allows all). Prints each offence, exits 1 if there is one.
"""
import pathlib
import re
import sys

INTRINSICS = re.compile(r"(immintrin|x86intrin|avx\w*intrin|amx\w*intrin)\.h")
THIRD_PARTY = re.compile(r"^(spdlog|fmt|nlohmann|simdjson|pcre2|utf8proc|CLI|boost|xxhash|sqlite3|curl|lzma)\b")


def read_rooms(path):
    lines = pathlib.Path(path).read_text().splitlines()
    return {a.strip(): b.split() for a, b in (line.split(":") for line in lines if ":" in line)}


def find_cycle(allow):
    done = set()

    def visit(room, path):
        if room in path:
            return path[path.index(room):] + [room]
        if room in done:
            return None
        for dep in allow.get(room, []):
            if dep != "*" and (cycle := visit(dep, path + [room])):
                return cycle
        done.add(room)
        return None

    return next((c for room in allow if (c := visit(room, []))), None)


def offence(include, here, there, allow, is_door, is_test):
    if there and there != here and not is_test and not {there, "*"} & set(allow[here]):
        return "edge not in rooms.txt"
    if there and there != here and include.count("/") > there.count("/") + 1:
        return "private header of another room"
    if "cuda_runtime" in include and here != "backend/cuda":
        return "CUDA outside its room"
    if INTRINSICS.search(include) and not here.startswith("backend/"):
        return "intrinsics outside a backend"
    if THIRD_PARTY.search(include) and is_door:
        return "third-party type in a door"
    return None


def main():
    root, allow, bad = pathlib.Path(sys.argv[1]), read_rooms(sys.argv[2]), 0

    def room_of(parts):
        return next((r for r in ("/".join(parts[:2]), parts[0]) if r in allow), None)

    if cycle := find_cycle(allow):
        print("cycle in rooms.txt:", " -> ".join(cycle))
        bad = 1
    for f in sorted(p for p in root.rglob("*") if p.suffix in {".h", ".cpp", ".cu", ".cuh"}):
        parts = f.relative_to(root).parts
        here = room_of(parts)
        if here is None:
            print(f"{f}: not in any room")
            bad = 1
            continue
        is_door = f.suffix == ".h" and len(parts) == here.count("/") + 2
        is_test = f.stem.endswith("_test") or "testing" in parts  # tests may open any door, e.g. a backend's to run a graph
        for n, line in enumerate(f.read_text().splitlines(), 1):
            if not (m := re.match(r'\s*#\s*include\s+[<"]([^">]+)[">]', line)):
                continue
            there = room_of(tuple(m[1].split("/")))
            if why := offence(m[1], here, there, allow, is_door, is_test):
                print(f"{f}:{n}: {why}: {m[1]}")
                bad = 1
    sys.exit(bad)


if __name__ == "__main__":
    main()
