"""The plot and the tables of docs/performance.md, from one result of peers.py. Prose around the tables stays."""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

NAMES = {"smollm2-135m": "SmolLM2-135M", "qwen3-0.6b": "Qwen3-0.6B", "llama-3.2-1b": "Llama-3.2-1B"}
TITLES = {"prefill512": "Prefill of 512 tokens", "decode": "Decode, short context", "depth4096": "Decode at depth 4,096",
          "depth16384": "Decode at depth 16,384", "rows16": "Decode of 16 rows together"}

PLOT = """
import json, sys
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
data = json.load(open(sys.argv[1]))
titles, names, rows = data["titles"], data["names"], data["rows"]
cases = [c for c in titles if any(r["case"] == c for r in rows)]
engines = list(dict.fromkeys(r["engine"] for r in rows))
labels = list(dict.fromkeys((r["model"], r["quant"]) for r in rows))
fig, axes = plt.subplots(len(cases), 1, figsize=(9, 2.6 * len(cases)), squeeze=False)
width = 0.8 / len(engines)
for axis, case in zip(axes[:, 0], cases):
    for e, engine in enumerate(engines):
        of = {(r["model"], r["quant"]): r["tps"] for r in rows if r["case"] == case and r["engine"] == engine}
        at = [i + (e - (len(engines) - 1) / 2) * width for i, label in enumerate(labels) if label in of]
        axis.bar(at, [of[label] for label in labels if label in of], width, label=engine)
    axis.set_title(titles[case], fontsize=10)
    axis.set_ylabel("tokens/s")
    axis.set_yscale("log")
    axis.set_xticks(range(len(labels)), [f"{names.get(m, m)}\\n{q}" for m, q in labels], fontsize=8)
    axis.grid(axis="y", alpha=0.3)
axes[0, 0].legend(fontsize=8, ncols=len(engines))
fig.tight_layout()
fig.savefig(sys.argv[2])
"""


def between(text, name, body):
    begin, end = f"<!-- {name}: written by bench/peers.py -->", f"<!-- end of {name} -->"
    head, rest = text.split(begin, 1)
    return head + begin + "\n\n" + body + "\n\n" + end + rest.split(end, 1)[1]


def cell(row):
    if row["engine"] == "kvasir":
        share, of = max((row.get("share_of_read", 0), "read"), (row.get("share_of_float", 0), "float"))
        return f"{row['tps']:.1f} ({100 * share:.0f} % of {of})"
    texts = [f"{mode}×{r['median']:.2f}, {r['min']:.2f}–{r['max']:.2f}"
             for mode, r in (("", row.get("ratio")), ("int8 ", row.get("ratio_int8"))) if r]
    return f"{row['tps']:.1f}" + (f" ({'; '.join(texts)})" if texts else "")


def table(rows, case):
    of_case = [r for r in rows if r["case"] == case]
    engines = list(dict.fromkeys(r["engine"] for r in of_case))
    lines = ["| model | weights | " + " | ".join(engines) + " |", "|---|---|" + "---:|" * len(engines)]
    for model, quant in dict.fromkeys((r["model"], r["quant"]) for r in of_case):
        cells = {r["engine"]: cell(r) for r in of_case if (r["model"], r["quant"]) == (model, quant)}
        lines.append(f"| {NAMES.get(model, model)} | {quant} | " + " | ".join(cells.get(e, "–") for e in engines) + " |")
    return "\n".join(lines)


def machine(result):
    ours = [s for s in result["samples"] if s["engine"] == "kvasir"]
    middle = sorted(ours, key=lambda s: s["read_gb_s"])[len(ours) // 2]
    versions = ", ".join(f"{name} {version}" for name, version in result["engines"].items())
    shared = statistics.median(s.get("shared_time", -1) for s in ours)
    neighbours = f", other threads on the cores {100 * shared:.0f} % of the time" if shared >= 0 else ""
    return (f"{result['cpu']}, {result['threads']} threads, {result['date']}, {result['pairs']} pairs. Measured beside the runs: reads "
            f"{middle['read_gb_s']:.1f} GB/s, {middle['float_unit']} {middle['float_gflop_s']:.0f} GFLOP/s{neighbours}. {versions}.")


def all_cases(rows):
    engines = list(dict.fromkeys(r["engine"] for r in rows))
    lines = ["| case | model | weights | " + " | ".join(engines) + " |", "|---|---|---|" + "---:|" * len(engines)]
    for case, title in TITLES.items():
        for model, quant in dict.fromkeys((r["model"], r["quant"]) for r in rows if r["case"] == case):
            cells = {r["engine"]: cell(r) for r in rows if (r["case"], r["model"], r["quant"]) == (case, model, quant)}
            lines.append(f"| {title} | {NAMES.get(model, model)} | {quant} | " + " | ".join(cells.get(e, "–") for e in engines) + " |")
    return "\n".join(lines)


def write(root, result, python, place):
    """place: "main", a table a case and the plot; or the name of the one table that another machine has."""
    page = root / "docs" / "performance.md"
    if place != "main":
        page.write_text(between(page.read_text(), place, machine(result) + "\n\n" + all_cases(result["summary"])))
        return
    text = between(page.read_text(), "machine", machine(result))
    for case, title in TITLES.items():
        of_case = [r for r in result["summary"] if r["case"] == case]
        text = between(text, case, table(of_case, case) if of_case else "Not measured in this run.")
    page.write_text(text)
    with tempfile.NamedTemporaryFile("w", suffix=".json", delete=False) as data:
        json.dump({"titles": TITLES, "names": NAMES, "rows": result["summary"]}, data)
    subprocess.run([str(python), "-c", PLOT, data.name, str(root / "docs" / "performance.svg")], check=True)
    os.unlink(data.name)
