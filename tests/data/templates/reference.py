"""The reference environment: Python jinja2 as chat templates are rendered with it. Used by make_cases.py."""
import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import SandboxedEnvironment, modifies_known_mutable

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


class Environment(SandboxedEnvironment):
    """A template may change what it made itself, never what it was given."""

    inputs: set = set()

    def is_safe_attribute(self, obj, attr, value):
        if id(obj) in self.inputs and modifies_known_mutable(obj, attr):
            return False
        return super().is_safe_attribute(obj, attr, value)


def containers(value):
    if isinstance(value, (list, dict)):
        yield id(value)
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: NOW.strftime(f)
    return env


def render(source, variables):
    """{"text"} or {"error"}."""
    try:
        env = environment()
        env.inputs = set(containers(variables))
        return {"text": env.from_string(source).render(**variables)}
    except Exception as e:  # every kind of failure is an expected result
        return {"error": f"{type(e).__name__}: {e}"}
